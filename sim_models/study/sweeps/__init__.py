"""Studies: any command over a grid or a list of settings, resumable, on this machine or on many."""
