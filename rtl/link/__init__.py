"""The ends of the links: what leaves and what arrives."""
