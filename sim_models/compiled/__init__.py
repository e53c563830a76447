"""What the compiled models are built with: numba's options, state by reference, records, methods chosen by type."""
