"""Rows that others measured and published, as CSV; README.md beside this file says whose they are."""
