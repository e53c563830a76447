"""One GPU, cycle by cycle: the loop, its agents, links and caches, and HBM."""
