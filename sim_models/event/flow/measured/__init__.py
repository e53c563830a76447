"""Measurements by others against which the event level is checked; each file names its source and licence."""
