"""A GEMM and its collective on the event level, tile by tile: what overlaps on GPUs that are sold."""
