"""A memory channel: what waits for DRAM, in which order, and sums at memory."""
