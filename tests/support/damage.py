"""Files that are damaged in every way that a seed gives, or in one place, and what a command answers: one line."""

import random
import re
from collections.abc import Iterator

from t3sim import cli

LONGEST_LINE = 400


def damaged(content: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """Give cut, flipped, repeated and shuffled copies of a file."""
    dice = random.Random(seed)
    for number in range(count):
        made = bytearray(content)
        start, end = sorted(dice.randrange(len(content) + 1) for _ in range(2))
        if number % 5 == 0:
            made = made[:start]
        elif number % 5 == 1:
            for _ in range(1 + number % 7):
                made[dice.randrange(len(made))] ^= 1 << dice.randrange(8)
        elif number % 5 == 2:
            made[start:start] = made[start:end]
        elif number % 5 == 3:
            del made[start:end]
        else:
            made[start:start + 8] = dice.randbytes(dice.randrange(16))
        yield bytes(made)


def replaced(text, old, new):
    """Replace what must be there: where nothing is broken, nothing can be noticed."""
    assert old in text, f"there is no {old!r} to replace"
    return text.replace(old, new)


def answered(capsys, words: list, allowed: tuple[int, ...] = (1, 2)) -> str:
    """Run a command that must end in one line, with one of these exit codes; return the line.

    Exit code 0, where it is allowed, may come without one.
    """
    code = cli.main([str(word) for word in words])
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if not line.startswith("t3: ") or line.startswith("t3: error")]
    assert code in allowed and "Traceback" not in printed.err, (code, printed.err[:500])
    if code == 0:
        return ""
    assert printed.out == "" and len(lines) == 1, (printed.out[:200], printed.err[:500])
    assert re.fullmatch(r"t3: error: [ -~–µ]+", lines[0]) and len(lines[0]) <= LONGEST_LINE, lines[0]
    return lines[0]
