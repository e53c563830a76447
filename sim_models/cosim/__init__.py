"""Lockstep co-simulation: Verilog, the compiled RTL, and one interface over every simulator.

The only door between the models and the hardware: no other part of `sim_models` imports a component of `rtl`.
"""
