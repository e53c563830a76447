"""A switch between GPUs that adds what they send to one of them, and copies what one sends to several."""
