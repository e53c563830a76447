"""Frequency of each row of an embedding table, in proportion: a named law, or a custom file.

A recorded trace of look-ups becomes such a file by counting how often it names each row.
"""

import os
import re
from pathlib import Path

import numpy as np

from t3sim.base.bounded import TooLarge, read_bounded
from t3sim.base.errors import BadInput, shown

MOST_ROWS = 1 << 20
_MOST_BYTES = 32 * MOST_ROWS


def named_weights(name: str, rows: int) -> np.ndarray | None:
    """Return the weights of `uniform` or `zipf:EXPONENT`, float64[row]; None: it is neither."""
    exponent = zipf_exponent(name)
    return None if exponent is None else np.arange(1, rows + 1, dtype=np.float64) ** -exponent


def zipf_exponent(name: str) -> float | None:
    """Return the exponent of `uniform`, 0, or of `zipf:EXPONENT`; None: it is neither."""
    if name == "uniform":
        return 0.0
    match = re.fullmatch(r"zipf:(\d{1,2}(?:\.\d{1,6})?)", name, re.ASCII)
    return None if match is None else float(match[1])


def weights_of_file(name: str) -> tuple[float, ...]:
    """Read the weights of a table's rows: numbers of 0 or more, one per line or with commas between; # begins a remark.

    Raises BadInput with the line that is none.
    """
    path = Path(name)
    if not os.path.isfile(name):
        raise BadInput(f"layer.locality = {shown(name)} is unknown: allowed are uniform, zipf:EXPONENT, for example "
                       "zipf:1.05, and a file of weights, one for each row of a table")
    try:
        text = read_bounded(path, _MOST_BYTES).decode("utf-8")
    except (OSError, TooLarge, UnicodeDecodeError) as error:
        why = "it is no text" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        raise BadInput(f"layer.locality = {shown(name)} cannot be read: {why}") from None
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        for word in line.partition("#")[0].replace(",", " ").split():
            try:
                found.append(float(word))
            except ValueError:
                found.append(float("nan"))
            if not 0 <= found[-1] < 1e30:
                raise BadInput(f"layer.locality = {shown(name)}, line {number}: {shown(word)} is no weight: a number "
                               "from 0 to 1e30 is allowed")
    if not 1 <= len(found) <= MOST_ROWS:
        raise BadInput(f"layer.locality = {shown(name)} has {len(found):,} weights: allowed are 1 to {MOST_ROWS:,}, "
                       "one for each row of a table")
    if not any(found):
        raise BadInput(f"layer.locality = {shown(name)} names no row: all weights are 0")
    return tuple(found)
