"""The event level: transfers as flows, GEMMs as tiles, for GPUs that are sold and for many of them."""
