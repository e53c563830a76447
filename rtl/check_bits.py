"""Check bits of a protected memory word: parity, or a Hsiao code, which corrects one bit and detects two.

Plain Python, used by the geometry and the reference model.
"""

import functools
from itertools import combinations

#: Protections of a memory, in the order of their codes in the register GEOMETRY5.
PROTECTIONS = ("none", "parity", "secded")


@functools.cache
def columns(protection: str, data_bits: int) -> tuple[int, ...]:
    """Return, for each data bit, a mask of its check bits. Each check bit makes its parity even.

    With "secded", columns are distinct and of odd weight, like the check bits' own columns of weight 1 (M. Y. Hsiao,
    IBM J. Res. Dev. 14, 1970). One flip has its column as syndrome and two have a syndrome of even weight, so they are
    not confused. The lightest columns are chosen and spread evenly over the check bits, which keeps the deepest parity
    tree short.
    """
    if protection == "none":
        return (0,) * data_bits
    if protection == "parity":
        return (1,) * data_bits
    rows = next(r for r in range(4, 16) if (1 << (r - 1)) - r >= data_bits)
    load, chosen = [0] * rows, []
    for weight in range(3, rows + 1, 2):
        left = list(combinations(range(rows), weight))
        while left and len(chosen) < data_bits:
            best = min(left, key=lambda column: (sorted((load[row] for row in column), reverse=True), column))
            left.remove(best)
            chosen.append(sum(1 << row for row in best))
            for row in best:
                load[row] += 1
    return tuple(chosen)


def check_bits(protection: str, data_bits: int) -> int:
    """Return the number of check bits of a word with `data_bits` bits."""
    return max(columns(protection, data_bits)).bit_length()
