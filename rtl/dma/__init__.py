"""Triggered tiles and queued commands, as the lines that they read and send."""
