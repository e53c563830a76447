"""cocotb testbenches on the generated Verilog, with their drivers and monitors."""
