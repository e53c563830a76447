"""Set what the event level predicts beside what `measure_contention.cu` measured: a GEMM beside copies.

    python scripts/predict_contention.py measured.json --machine a100-nvlink

In the prediction copies take from the memory what they read and write, at the rate that they reached, and a copying
kernel takes a compute unit per block. The GEMM is the kernel that the library would have taken alone; it waits for
nothing but bandwidth. What copies take from the last-level cache, and that they make single loads wait longer, is not
in it: the difference says how much that is.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from t3sim.errors import BadInput
from t3sim.machine.levels import load_tiles
from t3sim.machine.section import Count, NotNegative, Positive, Section
from t3sim.machine.tiles import Node
from t3sim.tiles.gemm import Shape, best, kernel


class Times(Section):
    """Times of a GEMM, in microseconds."""

    median: Positive
    tenth: Positive
    ninetieth: Positive


class Point(Section):
    """A GEMM, alone and beside copies."""

    m: Count
    n: Count
    k: Count
    copier: str
    asked_gb_per_s: Positive | None
    reached_gb_per_s: NotNegative
    alone_us: Times
    beside_us: Times


class Measured(Section):
    """Output of the program."""

    gpu: str
    date: str
    driver: int
    runtime: int
    compute_units: Count
    clock_ghz: Positive
    memory_gb_per_s: Positive
    copying_blocks: Count
    to_another_gpu: bool
    repeats: Count
    points: list[Point]


@dataclass(frozen=True)
class Prediction:
    """A GEMM on a machine, alone and beside copies; in microseconds."""

    alone_us: float
    beside_us: float | None  #: None: copies of that rate take all that the machine's memory gives


def predict(node: Node, measured: Measured, point: Point) -> Prediction:
    """Predict a point from the machine's description, and from nothing that was measured but the copies' rate."""
    shape = Shape(point.n, point.m, point.k)  # rows of a column-major output are the other extent
    chosen = best(node, shape)
    units = chosen.units - (measured.copying_blocks if point.copier == "kernel" else 0)
    taken = point.reached_gb_per_s * (1 if measured.to_another_gpu else 2)
    left = node.memory_bytes_per_ns - taken
    if units < 1 or left <= 0:
        return Prediction(chosen.ns / 1e3, None)
    memory = node.memory.model_copy(update={"bandwidth_gb_per_s": left / node.memory.efficiency})
    beside = kernel(node.model_copy(update={"memory": memory}), shape, (chosen.tile_m, chosen.tile_n), chosen.split,
                    units)
    return Prediction(chosen.ns / 1e3, beside.ns / 1e3)


def table(node: Node, measured: Measured) -> list[str]:
    """Return the lines that are printed, a heading and one per point."""
    lines = [f"{measured.gpu}, driver {measured.driver}, {measured.date}; the prediction is of {node.name}",
             f"{'GEMM':>20} {'copier':>7} {'GB/s':>7} {'alone, us':>10} {'model':>10} {'loses':>8} {'model':>8}"]
    for point in measured.points:
        said = predict(node, measured, point)
        loses = 100 * (point.beside_us.median / point.alone_us.median - 1)
        model = "-" if said.beside_us is None else f"{100 * (said.beside_us / said.alone_us - 1):.1f} %"
        lines.append(f"{f'{point.m}x{point.n}x{point.k}':>20} {point.copier:>7} {point.reached_gb_per_s:>7.1f} "
                     f"{point.alone_us.median:>10.1f} {said.alone_us:>10.1f} {f'{loses:.1f} %':>8} {model:>8}")
    return lines


def read(path: Path) -> Measured:
    """Read what the program wrote. Raises `BadInput` with the first thing that is wrong."""
    try:
        return Measured.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadInput(f"{path}: {'.'.join(map(str, first['loc'])) or 'not JSON'}: {first['msg']}") from None


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("measured", type=Path, help="what the program wrote with --out")
    parser.add_argument("--machine", default="a100-nvlink", help="a machine of the event level, or its file")
    given = parser.parse_args()
    try:
        print("\n".join(table(load_tiles(given.machine), read(given.measured))))
    except ValueError as error:
        print(f"predict_contention: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
