"""Events of a run, cycle by cycle: recorded from inside the lockstep loop, kept as events of one schema."""
