"""Operators: what a kernel computes and stores, as arrays. They know no devices' roles."""
