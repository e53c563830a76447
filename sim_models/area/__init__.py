"""What a block costs in silicon or on an FPGA: Yosys, a standard-cell library, static timing, place and route."""
