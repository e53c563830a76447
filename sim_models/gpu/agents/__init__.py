"""Agents that act on a GPU, cycle by cycle. They see arrays only."""
