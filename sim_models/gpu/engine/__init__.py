"""The one loop: a GPU's models, its hardware if it has one, and whoever watches, cycle by cycle."""
