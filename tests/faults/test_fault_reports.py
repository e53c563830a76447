"""Bits that flip in any of the Tracker's banks are counted, and shown with their place."""

import random
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from t3sim.cosim.verilog import component_verilog
from t3sim.machine import load_machine
from t3sim.rtlsim.amaranth_backend import AmaranthBackend
from tests.support.flippable import FlippableTop
from tests.support.gpu import BASE, EVENT_REGION, INTERLEAVE, LIMIT, Gpu
from tests.support.variants import small_machine

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

_SMALL = small_machine(load_machine()).geometry()
#: Of two groups of channels, each feeds a bank in every cycle.
GEOMETRY = replace(_SMALL, channel=replace(_SMALL.channel, channels=8),
                   tracker=replace(_SMALL.tracker, banks=4, protection="secded"))
BANKS = range(GEOMETRY.tracker.banks)
AT_HAND = 2  #: row of the tile that each bank has written last: flipped bits of that do not count


class FlippableGpu(Gpu):
    geometry = GEOMETRY

    def flip(self, bank: int, row: int, bits: int) -> None:
        """Flip bits of each entry in a row."""
        self._quiet()
        for way in range(GEOMETRY.tracker.ways):
            mask = sum(1 << bit for bit in random.Random(bank).sample(range(10), bits))
            for name, value in {"bank": bank, "row": row, "way": way, "in_entry": 1, "mask": mask}.items():
                self.put(f"flip_{name}", value)
            self.backend.step()
        self.put("flip_mask", 0)

    def update(self, row: int, banks) -> None:
        """A byte for each bank's tile in this row, through different channels."""
        for bank in banks:
            self.access("compute", BASE + bank * 5 % 8 * INTERLEAVE, 1, region=EVENT_REGION, wg=row * len(BANKS) + bank)
        self.run(60)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU with three open tiles in each bank."""
    top = partial(FlippableTop, GEOMETRY)
    ports = component_verilog(top, "gpu_top", ("flippable", GEOMETRY))[1]
    monkeypatch.setattr("tests.support.gpu.gpu_design",
                        lambda geometry: SimpleNamespace(simulator=lambda: AmaranthBackend(top(), ports)))
    made = FlippableGpu()
    made.program([*made.driver.open_memory(0, base=BASE, limit=LIMIT),
                  *made.driver.event_map(EVENT_REGION, base=BASE, limit=LIMIT, tile_bytes=640, updates_per_element=1,
                                         arrivals=[0])])
    for row in range(AT_HAND + 1):
        made.update(row, BANKS)
    return made


def test_flipped_bits_of_each_bank_are_counted_and_shown(gpu):
    for bits, kind, other in ((1, "corrected", "uncorrectable"), (2, "uncorrectable", "corrected")):
        for bank in BANKS:
            gpu.program(gpu.driver.clear_error() + gpu.driver.clear_counters())
            gpu.flip(bank, 0, bits)
            gpu.update(0, [bank])
            found = gpu.driver.tracker_fault(gpu.bus.read)
            assert (found["kind"], found["set"], found["memory"]) == (kind, bank, "entry")
            counted = gpu.counters()
            assert (counted[f"tracker_{kind}"], counted[f"tracker_{other}"]) == (1, 0)
            gpu.flip(bank, 1, bits)
        gpu.program(gpu.driver.clear_counters())
        gpu.update(1, BANKS)  # two in one cycle
        assert gpu.counters()[f"tracker_{kind}"] == len(BANKS)
        gpu.update(AT_HAND, BANKS)
