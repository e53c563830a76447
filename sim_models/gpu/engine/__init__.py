"""The loop: a GPU's models, its RTL if it has one, and the observers, cycle by cycle."""
