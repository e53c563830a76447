"""Would the tests notice a bug? `make mutate` breaks the netlist, or the source, of every block in many places."""
