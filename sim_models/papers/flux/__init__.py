"""The evaluation of Flux: operators on three kinds of nodes, tile by tile on the event level."""
