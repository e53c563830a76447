"""Cost of a block in silicon or on an FPGA: Yosys, a standard-cell library, static timing, place and route."""
