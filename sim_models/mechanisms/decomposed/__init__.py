"""A GEMM per chunk of its collective, whose kernels run beside the GEMMs on some compute units."""
