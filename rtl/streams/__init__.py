"""Small parts shared by blocks: queues, fair grants, forwarded reads, counts."""
