"""Synthesizable Amaranth RTL of T3's Track & Trigger hardware."""
