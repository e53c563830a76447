"""The Tracker: updates of memory in, triggers out."""
