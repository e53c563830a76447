"""Whole trainings and inferences in closed form, vectorised over parallel mappings.

Operators, collectives, pipeline, memory and energy of a Transformer on a cluster.
"""
