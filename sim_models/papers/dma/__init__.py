"""The evaluation of DMA collectives on MI300X, on the event level."""
