"""And-inverter graphs in AIGER files (A. Biere, K. Heljanko, S. Wieringa: AIGER 1.9, 2011), and random runs of them."""

import random
from collections.abc import Iterator
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
    names: dict[str, int]  #: of latches: variables

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
            if kind[:1] == "l" and kind[1:].isdigit():
                names |= dict.fromkeys(known, inputs + 1 + int(kind[1:]))
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
