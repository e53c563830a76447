"""A switch between GPUs that adds their parts of a sum and copies packets to several of them."""
