"""A driver's calls as register writes, over the configuration bus."""
