"""A block placed and routed with programs of Debian: layout, wires, and what they do to the clock."""
