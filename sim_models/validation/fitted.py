"""Rows from which a machine's constants come: `[measured.fitted]` of its file."""

from .requests import Measured


def is_fitted(row: Measured, machine: str) -> bool:
    """Say whether a constant of the machine comes from this row."""
    return False
