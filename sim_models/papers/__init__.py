"""The T3 paper's evaluation (sections 5 to 7), reproduced with RTL in the loop."""
