"""Which check bits a protected memory word has: parity, or a Hsiao code, which corrects one bit and detects two.

Plain Python: the geometry counts bits with it, and the reference model judges words by it.
"""

import functools
from itertools import combinations

#: Ways to protect a memory, in the order of their codes in the register GEOMETRY3.
PROTECTIONS = ("none", "parity", "secded")


@functools.cache
def columns(protection: str, data_bits: int) -> tuple[int, ...]:
    """Return, for each data bit, a mask of the check bits that it takes part in. A check bit makes its parity even.

    With "secded" columns are distinct and of odd weight, as are those of the check bits themselves, which stand alone
    (M. Y. Hsiao, IBM J. Res. Dev. 14, 1970): one flip shows its own column, two show an even number of ones, so
    neither is taken for the other. Of the lightest columns those are chosen that load the check bits evenly: the
    deepest parity tree is as short as can be.
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
    """Return how many check bits a word of `data_bits` has."""
    return max(columns(protection, data_bits)).bit_length()
