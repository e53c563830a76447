"""Bytes at a GPU's DRAM by the phases of a run, which fabric counts by streams."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from t3sim.gpu.fabric.state import MemoryState

PACKING = "packing"  #: of what is dispatched, before that
PHASES = ("gemm", "rs", "ag")  #: of the streams, in their order
PURPOSES = tuple(f"{phase}_{direction}" for phase in PHASES for direction in ("read", "write"))


class Moved(NamedTuple):
    """Bytes that a phase has read and written at one GPU's DRAM."""

    read: int = 0
    write: int = 0


def bytes_by_phase(mem: "MemoryState", device: int = 0) -> dict[str, Moved]:
    """Count the bytes at one GPU's DRAM so far, by phase; a collective that is none of `PHASES` counts as rs."""
    return {phase: Moved(*counts) for phase, counts in zip(PHASES, mem.dram_bytes[device].reshape(-1, 2).tolist())}


def named(moved: Mapping[str, Moved], names: Iterable[str | None]) -> dict[str, Moved]:
    """Give the phases, in their order, other names; one without a name is left out."""
    return {name: counts for name, counts in zip(names, moved.values(), strict=True) if name}


def by_stream(moved: Mapping[str, Moved]) -> dict[str, int]:
    """Name each phase's bytes in each direction: `gemm_read`."""
    return {f"{phase}_{way}": count for phase, counts in moved.items() for way, count in counts._asdict().items()}
