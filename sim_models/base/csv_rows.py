"""Tables that come with the package: CSV whose first lines, which begin with '#', name source and licence."""

import csv
from importlib import resources


def csv_rows(package: str, name: str) -> list[dict[str, str]]:
    """Return the rows of `name`.csv in `package` as text by column."""
    text = resources.files(package).joinpath(f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
