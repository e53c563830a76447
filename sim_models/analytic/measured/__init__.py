"""Measured rows as CSV, most of them published by others; README.md beside this file says whose they are."""
