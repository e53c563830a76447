"""Verilog of the blocks as files for other tools: source, ports and parameters, FuseSoC core, lint waivers."""
