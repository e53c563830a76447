"""GEMMs and collectives as the libraries of GPUs that are sold run them, and what overlaps with what."""
