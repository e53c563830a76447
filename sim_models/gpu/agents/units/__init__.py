"""The parts of the model of compute units (`agents.compute_units`)."""
