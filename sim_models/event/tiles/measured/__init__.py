"""Measurements by others against which the tile level is checked; each file names its source and licence."""
