"""A scenario: what is asked for, whether a file, options, a study or Python says it; and what is simulated for it."""
