"""Kernel files whose fields have unlawful values; as a program: run those of a folder that are accepted.

The program is run with numba's bounds checks, which end what reads or writes past an array.
"""

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.machine import load_machine
from t3sim.runs.failure import SimulationError
from t3sim.runs.isolated_kernels import run_table
from t3sim.workload.interchange.kernel_file import load_kernel
from t3sim.workload.operators import kernel_alone
from t3sim.workload.operators.kernel_table import (
    GROUP,
    LOAD,
    STEP,
    STORE,
    WAIT,
    KernelError,
    KernelTable,
    Route,
    rows_of,
)

MACHINE = Path(__file__).parents[1] / "data" / "machines" / "ring_small.toml"
EXTREMES = (-(1 << 62), -(1 << 31), -1, 0, 1, 2, 7, 255, (1 << 15) - 1, (1 << 31) - 1, 1 << 47, (1 << 48) + 1)


def small() -> KernelTable:
    """Two groups of two phases: loads strided and listed, stores everywhere, a signal and who waits for it."""
    return KernelTable(
        rows_of(GROUP, 3, workgroups=[2, 1, 1], first_step=[0, 1, 1], steps=1, phase=[0, 0, 1]),
        rows_of(STEP, 2, repeats=[2, 1], compute_cycles=[3.0, 5.0], first_load=[0, 1], loads=1, first_store=[0, 1],
                stores=[1, 2]),
        rows_of(LOAD, 2, base=[0, 4096], pitch=[256, 512], rows=[3, 2], bytes=[256, 100], workgroup_stride=[1024, 0],
                row_list=[-1, 0]),
        rows_of(STORE, 3, base=[1 << 16, 1 << 17, 1 << 18], pitch=128, rows=[1, 2, 1], bytes=128,
                workgroup_stride=[4096, 0, 0], route=[Route.MEMORY, Route.PEER, Route.CACHE], id=[0, 1, 0]),
        np.array([3, 0]), np.array([0, 8]), waits=np.array([(0, 0), (0, 0), (1, 1)], WAIT), raises=np.array([1, 0, 0]),
        signals=np.array([6]), ahead=2)


def changed(count: int | None = None, seed: int = 0) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Give each field with each extreme value, and then files with several flipped bits."""
    table = small()
    good = {one.name: np.array(getattr(table, one.name)) for one in fields(KernelTable)}
    for name, array in good.items():
        for column in array.dtype.names or (None,):
            for value in (*EXTREMES, float("nan"), 1e300):
                made = array.copy()
                place = made if column is None else made[column]
                try:
                    place[(0,) * place.ndim] = value
                except (ValueError, OverflowError, IndexError):
                    continue
                yield f"{name}-{column}-{value}", {**good, name: made}
    dice = np.random.default_rng(seed)
    for number in range(100 if count is None else count):
        made = {name: array.copy() for name, array in good.items()}
        for _ in range(int(dice.integers(1, 4))):
            array = made[str(dice.choice(["groups", "steps", "loads", "stores", "waits"]))]
            raw = array.view(np.uint8)
            raw[dice.integers(len(raw))] ^= 1 << dice.integers(8)
        yield f"flipped-{number}", made


def main(folder: Path) -> None:
    kernel_alone._MOST_LINES = kernel_alone._MOST_CYCLES = 20_000
    machine, ran = load_machine(str(MACHINE)), 0
    for path in sorted(folder.iterdir()):
        try:
            assert run_table(load_kernel(path), machine).simulated_cycles >= 0
            ran += 1
        except (BadInput, KernelError, SimulationError) as error:
            assert "\n" not in str(error)
        except Exception as error:
            raise RuntimeError(f"{path.name}: {error!r}") from error
    print(ran)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
