"""Models of everything around the hardware: memory, links, workloads, and the driver."""
