"""And-inverter graphs in AIGER files (A. Biere, K. Heljanko, S. Wieringa: AIGER 1.9, 2011), and random runs of them."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

RUNS = 4096  #: at a time, one per bit of an integer
EVERY_RUN = (1 << RUNS) - 1


@dataclass(frozen=True)
class Circuit:
    """An and-inverter graph. A literal is twice a variable's number, plus 1 if inverted.

    Variables are, in order, the constant 0, inputs, latches, ANDs. Latches start with 0.
    """

    inputs: int
    latches: tuple[int, ...]  #: literals of their next values
    outputs: tuple[int, ...]
    ands: tuple[tuple[int, int], ...]
    names: dict[str, int]  #: of inputs and latches: variables

    @property
    def first_latch(self) -> int:
        return self.inputs + 1

    @property
    def first_and(self) -> int:
        return self.first_latch + len(self.latches)

    @classmethod
    def read(cls, file: bytes) -> "Circuit":
        """Read a binary file; bad states count as outputs."""
        head, rest = file.split(b"\n", 1)
        _, inputs, latches, outputs, ands, *bad = (int(word) for word in head.split()[1:])
        *lines, rest = rest.split(b"\n", latches + outputs + sum(bad))
        literals = [int(line.split()[0]) for line in lines]
        numbers, position, pairs = [], 0, []
        while len(numbers) < 2 * ands:
            value = shift = 0
            while True:
                byte, position = rest[position], position + 1
                value, shift = value | (byte & 127) << shift, shift + 7
                if byte < 128:
                    break
            numbers.append(value)
        for number in range(ands):
            left = 2 * (inputs + latches + 1 + number) - numbers[2 * number]
            pairs.append((left, left - numbers[2 * number + 1]))
        names = {}
        for line in rest[position:].split(b"\nc\n")[0].decode().splitlines():
            kind, *known = line.split(" ")
            if kind[:1] in ("i", "l") and kind[1:].isdigit():
                names |= dict.fromkeys(known, 1 + int(kind[1:]) + (inputs if kind[0] == "l" else 0))
        return cls(inputs, tuple(literals[:latches]), tuple(literals[latches:]), tuple(pairs), names)

    def write(self) -> bytes:
        """Write a binary file, without names."""
        variables = self.first_and - 1 + len(self.ands)
        head = f"aig {variables} {self.inputs} {len(self.latches)} {len(self.outputs)} {len(self.ands)}"
        deltas = bytearray()
        for number, pair in enumerate(self.ands, start=self.first_and):
            for value in (2 * number - max(pair), max(pair) - min(pair)):
                while value > 127:
                    deltas.append(value & 127 | 128)
                    value >>= 7
                deltas.append(value)
        return "".join(f"{line}\n" for line in (head, *self.latches, *self.outputs)).encode() + bytes(deltas)

    def reduced(self, constants: dict[int, int], pairs: Iterable[tuple[int, int]], free: bool = False) -> "Circuit":
        """Return what its outputs depend on, with constants for some inputs, and latches that are alike made one.

        Two of a pair are alike if their next values are the same node once all that are alike are one. If they are
        `free`, they become inputs.
        """
        alike = {other: first for first, other in pairs}
        while True:
            literals, ands = self._folded(constants, alike)

            def now(literal: int, literals=literals) -> int:
                return literals[literal >> 1] ^ literal & 1

            following = {number: now(literal) for number, literal in enumerate(self.latches, self.first_latch)}
            unlike = [other for other, first in alike.items() if following[other] != following[first]]
            if not unlike:
                break
            for other in unlike:
                del alike[other]
        freed = set(alike.values()) if free else set()
        following = {number: literal for number, literal in following.items() if number not in freed}
        outputs, needed = [now(literal) for literal in self.outputs], set()
        waiting = [literal >> 1 for literal in outputs]
        while waiting:
            number = waiting.pop()
            if number not in needed:
                needed.add(number)
                waiting += [literal >> 1 for literal in ands.get(number, (following.get(number, 0),))]
        latches = [number for number in following if number in needed]
        left = [number for number in ands if number in needed]
        inputs = [*range(1, self.first_latch), *sorted(freed & needed)]
        place = {number: new for new, number in enumerate((0, *inputs, *latches, *left))}

        def moved(literal: int) -> int:
            return 2 * place[literal >> 1] | literal & 1

        return Circuit(len(inputs), tuple(moved(following[number]) for number in latches), tuple(map(moved, outputs)),
                       tuple((moved(ands[number][0]), moved(ands[number][1])) for number in left),
                       {name: place[literals[number] >> 1] for name, number in self.names.items()
                        if number >= self.first_latch and literals[number] >> 1 in place})

    def _folded(self, constants: dict[int, int], alike: dict[int, int]) -> tuple[list[int], dict[int, tuple[int, int]]]:
        """Return the literal that each variable is, and those ANDs that are neither constant nor another one."""
        literals = [2 * alike.get(number, number) for number in range(self.first_and + len(self.ands))]
        for number, value in constants.items():
            literals[number] = value
        known: dict[tuple[int, int], int] = {}
        for number, (left, right) in enumerate(self.ands, self.first_and):
            a, b = literals[left >> 1] ^ left & 1, literals[right >> 1] ^ right & 1
            if a < b:
                a, b = b, a
            if b == 0 or a == b ^ 1:
                literals[number] = 0
            elif b == 1 or a == b:
                literals[number] = a
            else:
                literals[number] = known.setdefault((a, b), 2 * number)
        return literals, {literal >> 1: pair for pair, literal in known.items()}

    def random_runs(self, cycles: int, seed: int) -> Iterator[list[int]]:
        """Give the latches' values, cycle by cycle. An input changes often in some runs and never in others."""
        rng = random.Random(seed)

        def share(halvings: int) -> int:
            bits = rng.getrandbits(RUNS)
            for _ in range(halvings):
                bits &= rng.getrandbits(RUNS)
            return bits

        values = [0] * (self.first_and + len(self.ands))
        values[1:self.first_latch] = (rng.getrandbits(RUNS) for _ in range(self.inputs))
        kinds = [(rng.getrandbits(RUNS), rng.getrandbits(RUNS)) for _ in range(self.inputs)]
        state = [0] * len(self.latches)
        for _ in range(cycles):
            for number, (some, others) in enumerate(kinds, start=1):
                values[number] ^= some & others & share(0) | some & ~others & share(2) | ~some & others & share(5)
            values[self.first_latch:self.first_and] = state
            yield state
            for number, (left, right) in enumerate(self.ands, start=self.first_and):
                a, b = values[left >> 1], values[right >> 1]
                values[number] = (a ^ EVERY_RUN if left & 1 else a) & (b ^ EVERY_RUN if right & 1 else b)
            state = [values[literal >> 1] ^ (EVERY_RUN if literal & 1 else 0) for literal in self.latches]
