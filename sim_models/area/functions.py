"""Boolean functions of pins, as a Liberty file writes them.

They are `!A`, `A'`, `A & B`, `A * B`, `A B`, `A | B`, `A + B`, `A ^ B` and what parentheses make of them. The Liberty
reference manual lets inversion bind first, then exclusive or, then and, then or.
"""

import re
from typing import Any

_TOKEN = re.compile(r"\s*(?:([A-Za-z_0-9.\[\]]+)|([!'&*|+^()]))")
_OPERATORS = ("|+", "&*", "^")  #: from the loosest to the tightest
_LONGEST = 4096  #: characters; a cell's function takes some hundred
_DEEPEST = 100  #: parentheses and inversions within each other
_MOST_PINS = 8


def truth_table(function: str, pins: tuple[str, ...]) -> tuple[bool, ...] | None:
    """Return a pin's function for every input, counted in binary with the first pin lowest; None if of another kind."""
    if len(pins) > _MOST_PINS:
        return None
    rows = 1 << len(pins)
    all_ones = (1 << rows) - 1
    columns = {pin: sum(1 << row for row in range(rows) if row >> index & 1) for index, pin in enumerate(pins)}
    try:
        value = evaluate(function, {"0": 0, "1": all_ones, **columns}, all_ones)
    except (ValueError, KeyError):
        return None
    return tuple(bool(value >> row & 1) for row in range(rows))


def evaluate(function: str, values: dict[str, Any], all_ones: Any) -> Any:
    """Return a pin's function of whatever has the operators; `every` is its true. Raises ValueError, KeyError."""
    return _Parser(function, values, all_ones).whole()


class _Parser:
    """Evaluates a function for all inputs at once: a bit of an integer for each, or what else has the operators."""

    def __init__(self, text: str, values: dict[str, Any], all_ones: Any) -> None:
        if len(text) > _LONGEST or _TOKEN.sub("", text).strip():
            raise ValueError("no function of pins")
        self._tokens = [match[1] or match[2] for match in _TOKEN.finditer(text)] + [""]
        self._values, self._all_ones = values, all_ones
        self._index = self._depth = 0

    def _next(self) -> str:
        self._index += 1
        return self._tokens[self._index - 1]

    def whole(self) -> Any:
        value = self._expression(0)
        if self._tokens[self._index]:
            raise ValueError("more than a function")
        return value

    def _expression(self, level: int) -> Any:
        """Evaluate terms of a level and the operators between them; what stands side by side is and."""
        if level == len(_OPERATORS):
            return self._factor()
        value = self._expression(level + 1)
        while token := self._tokens[self._index]:
            is_implicit_and = level == 1 and token not in "'&*|+^)"
            if not (is_implicit_and or token in _OPERATORS[level]):
                break
            if not is_implicit_and:
                self._index += 1
            other = self._expression(level + 1)
            value = value | other if level == 0 else value & other if level == 1 else value ^ other
        return value

    def _factor(self) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ValueError("nested too deeply")
        token = self._next()
        if token == "!":
            value = self._factor() ^ self._all_ones
        elif token == "(":
            value = self._expression(0)
            if self._next() != ")":
                raise ValueError("a parenthesis stays open")
        else:
            value = self._values[token]
        while self._tokens[self._index] == "'":
            self._index += 1
            value ^= self._all_ones
        self._depth -= 1
        return value
