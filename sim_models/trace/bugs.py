"""Bugs to practise on: each is what a driver might program wrongly, written over a run's right settings.

docs/debugging.md finds them from their symptoms.
"""

from collections.abc import Callable
from dataclasses import replace

from t3sim.base.errors import BadInput
from t3sim.collectives.schedule import Action
from t3sim.collectives.schedule.regions import Region
from t3sim.runs.fused import FusedRun


def _first_dma_region(run: FusedRun, index: int) -> tuple[int, Region]:
    regions = run.spaces[index].regions
    for number, region in enumerate(regions, start=1):
        if Action.SEND_DMA in region.actions and region.updates > 1:
            return number, region
    raise BadInput("bug: this run has no DMA region (two GPUs?), so there is nothing to break")


def _write(run: FusedRun, index: int, writes) -> None:
    for offset, value in writes:
        run.masters[index].write(offset, value)


def _threshold(run: FusedRun) -> None:
    """Set a DMA region's threshold one byte too high: its tiles never fire."""
    number, region = _first_dma_region(run, 0)
    tile = region.rows * region.columns * run.tiling.element_bytes
    register = run.drivers[0].registers["REGION_THRESHOLD"]
    _write(run, 0, [(run.drivers[0].registers.table("region").offset(number) + register.offset,
                     tile * region.updates + 1)])


def _neighbour(run: FusedRun) -> None:
    """Make a DMA region send its tiles under the workgroup that follows theirs at the neighbour."""
    if run.sim.network.mirrored:
        raise BadInput("bug = neighbour needs gpus.every = true: a representative GPU has no neighbour")
    number, region = _first_dma_region(run, 0)
    wrong = [one._replace(id_offset=one.id_offset + 1) for one in region.destinations]
    _write(run, 0, run.spaces[0].map_region(run.drivers[0], number, replace(region, destinations=wrong)))


def _starvation(run: FusedRun) -> None:
    """Make the arbiters never let communication pass while the producer runs."""
    for index in range(len(run.masters)):
        driver = run.drivers[index]
        _write(run, index, [*driver.policy("mca", 1, None), driver._write("THRESHOLD", threshold=0)])


BUGS: dict[str, Callable[[FusedRun], None]] = {
    "threshold": _threshold, "neighbour": _neighbour, "starvation": _starvation}


def plant(name: str, run: FusedRun) -> None:
    """Break a run that is programmed and has not started."""
    BUGS[name](run)
