"""State and verbs of one resource each: they know neither matrices nor roles."""
