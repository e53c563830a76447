"""Relative frequency of each row of an embedding table: a named law, or a custom file.

To make such a file from a recorded trace of look-ups, count how often the trace names each row.
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
    """Return the weights of `uniform` or `zipf:EXPONENT`, float64[row]; None for another name."""
    exponent = zipf_exponent(name)
    return None if exponent is None else np.arange(1, rows + 1, dtype=np.float64) ** -exponent


def zipf_exponent(name: str) -> float | None:
    """Return the exponent of `uniform`, 0, or of `zipf:EXPONENT`; None for another name."""
    if name == "uniform":
        return 0.0
    match = re.fullmatch(r"zipf:(\d{1,2}(?:\.\d{1,6})?)", name, re.ASCII)
    return None if match is None else float(match[1])


def weights_of_file(name: str) -> tuple[float, ...]:
    """Read the weights of a table's rows: numbers from 0, one per line or separated by commas; # begins a comment.

    Raises BadInput, which names the faulty line.
    """
    path = Path(name)
    if not os.path.isfile(name):
        raise BadInput(f"layer.locality = {shown(name)} is unknown: allowed are uniform, zipf:EXPONENT, for example "
                       "zipf:1.05, and a file of weights, one for each row of a table")
    try:
        text = read_bounded(path, _MOST_BYTES).decode("utf-8")
    except (OSError, TooLarge, UnicodeDecodeError) as error:
        reason = "it is no text" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or error
        raise BadInput(f"layer.locality = {shown(name)} cannot be read: {reason}") from None
    weights = []
    for number, line in enumerate(text.splitlines(), start=1):
        for word in line.partition("#")[0].replace(",", " ").split():
            try:
                weights.append(float(word))
            except ValueError:
                weights.append(float("nan"))
            if not 0 <= weights[-1] < 1e30:
                raise BadInput(f"layer.locality = {shown(name)}, line {number}: {shown(word)} is not a weight: a "
                               "number from 0 to 1e30 is allowed")
    if not 1 <= len(weights) <= MOST_ROWS:
        raise BadInput(f"layer.locality = {shown(name)} has {len(weights):,} weights: allowed are 1 to {MOST_ROWS:,}, "
                       "one for each row of a table")
    if not any(weights):
        raise BadInput(f"layer.locality = {shown(name)} names no row: all weights are 0")
    return tuple(weights)
