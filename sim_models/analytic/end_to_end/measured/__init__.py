"""Measurements by others against which the closed form is checked; each file names its source and licence."""
