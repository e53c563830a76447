"""Small parts shared by blocks: queues, fair grants, late reads, counts."""
