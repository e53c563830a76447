"""Rows from which a machine's constants come: `[[measured.fitted]]` of its file."""

import re

from .gpus import loaded
from .requests import Measured


def is_fitted(row: Measured, machine: str) -> bool:
    """Say whether a constant of the machine comes from this row."""
    named = loaded(machine).measured
    return named is not None and any(one.file == row.file and re.search(one.rows, row.scenario)
                                     for one in named.fitted)
