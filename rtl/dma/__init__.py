"""Turns triggered tiles and queued commands into lines that are read and sent."""
