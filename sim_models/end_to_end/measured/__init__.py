"""Measurements by others against which the closed form is checked; each file names its source and licence."""

import csv
from importlib import resources


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of `name`.csv as text by column."""
    text = resources.files(__package__).joinpath(f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
