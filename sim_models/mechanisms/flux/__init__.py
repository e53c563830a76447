"""Flux: a GEMM whose epilogue stores at its output's owners, or whose workgroups wait for their tokens."""
