"""Would the tests notice a bug? `make mutate` breaks the netlist of every block in many places and looks."""
