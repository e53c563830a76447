"""Workloads: models, operators, kernel tables, routing of experts, and readers of other tools' files."""
