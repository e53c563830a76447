"""Plain-Python reference models, one per hardware block: the scoreboard of every simulator."""
