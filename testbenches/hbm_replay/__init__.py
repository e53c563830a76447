"""Traces replayed on the DRAM model, and that model beside public simulators."""
