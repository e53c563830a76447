"""A memory channel: queues, order and arbitration towards DRAM, and sums near memory."""
