"""Published measurements beside what the models of today's machines answer: `t3 validate`."""
