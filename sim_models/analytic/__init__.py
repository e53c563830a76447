"""Closed forms: libraries' GEMMs and collectives, whole trainings, and the measured rows that they answer."""
