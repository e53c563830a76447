"""Energy of the mapped blocks, from how often each net toggles in a run."""
