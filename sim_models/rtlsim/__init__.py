"""From an Amaranth component to C++ that evaluates what has changed. It imports nothing of t3sim but `base`."""
