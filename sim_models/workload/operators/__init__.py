"""Operators: a kernel's loads, computation and stores as arrays, independent of a GPU's role in a collective."""
