"""Helpers that any room may use: files and formats that know nothing of simulations."""
