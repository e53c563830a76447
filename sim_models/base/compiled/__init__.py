"""Tools to compile the models with: numba's options, state by reference, records, methods chosen by type."""
