"""Mistakes in the source: a statement left out, a connection that only the first channel gets, a bit too few.

Every place of `rtl/` at which an operator of `changes` can act is found by reading the source. All mistakes in a block
are one design, with an input that says which of them it has.
"""
