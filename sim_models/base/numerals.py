"""Numbers as users write them: digits 0 to 9, where Python's int() and float() take 1_000 and those of all scripts."""

import re

_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
_DECIMAL = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")


def whole(text: str) -> int:
    """Read a whole number. Raises ValueError."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def decimal(text: str) -> float:
    """Read a number such as 3, .5 or 3e11. Raises ValueError."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return float(text)
