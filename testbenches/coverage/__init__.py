"""Functional coverage: which situations the testbenches have been in. `points` lists them; `make coverage` reports."""
