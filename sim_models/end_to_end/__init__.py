"""Whole trainings and inferences in closed form: operators, collectives, pipeline, memory and energy of a Transformer
on a cluster, vectorised over its parallel mappings."""
