"""Table of the techniques that can be run: a record each, in a file of its own."""
