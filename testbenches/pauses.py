"""Pause generators: endless iterators that say, cycle by cycle, whether a stream's side pauses."""

import random
from collections.abc import Iterator


def never() -> Iterator[bool]:
    while True:
        yield False


def always() -> Iterator[bool]:
    while True:
        yield True


def share(rng: random.Random, part: float) -> Iterator[bool]:
    """Pause each cycle for itself, `part` of them."""
    while True:
        yield rng.random() < part


def bursts(rng: random.Random, run: int, pause: int) -> Iterator[bool]:
    """Alternate stretches without and with pause, up to twice as long as `run` and `pause` cycles."""
    while True:
        yield from (False for _ in range(rng.randint(1, 2 * run)))
        yield from (True for _ in range(rng.randint(1, 2 * pause)))


def changing(rng: random.Random) -> Iterator[bool]:
    """Change to another of the patterns above every few dozen cycles, so that queues run full and empty."""
    while True:
        pattern = rng.choice((never(), share(rng, 0.1), share(rng, 0.5), share(rng, 0.9), bursts(rng, 3, 10),
                              bursts(rng, 20, 3)))
        for _ in range(rng.randint(10, 80)):
            yield next(pattern)
