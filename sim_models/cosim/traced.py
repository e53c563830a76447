"""Inner signals of the per-GPU top, or of a block alone, that a trace records."""

from functools import partial
from typing import NamedTuple

import numpy as np
from amaranth.lib import data

from t3sim.cosim.component import build_component
from t3sim.cosim.gpu import NAME
from t3sim.rtl.arbiter import POLICY_BITS
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.gpu_top import GpuTop
from t3sim.rtl.layouts import request, trigger, update
from t3sim.rtlsim.port_map import PortMap
from t3sim.rtlsim.shown import PREFIX, Groups, Slot, slot
from t3sim.rtlsim.simulator import Design


def groups(geometry: Geometry) -> Groups:
    """Return the groups of the top. The recorder (sim_models/trace/rtl_events.py) reads them at these places."""
    groups = {f"channel[{c}]": _channel(geometry, f"channel_{c}.") for c in range(geometry.channel.channels)}
    groups |= {f"bank[{b}]": _bank(geometry, f"tracker_{b}.") for b in range(geometry.tracker.banks)}
    groups["merge"] = _triggers(geometry, "merge.merged", slot(2, 2, "to_table"))
    groups["table"] = [slot(0, 1, "table.w_en", "table.w_rdy"),
                       slot(8, geometry.dma.ready_commands.bit_length(), "table.ready_level"),
                       _struct(64, trigger(geometry), "table.w_data"),
                       _struct(192, trigger(geometry), "table.commands__payload")]
    groups |= {f"engine[{e}]": _engine(geometry, f"engine_{e}.") for e in range(geometry.dma.engines)}
    count = geometry.tracker.wg_bits + 1
    groups["ring"] = [slot(0, 1, "ring_monitor.late"), slot(64, count, "ring_monitor.since_idle"),
                      slot(128, count, "ring_monitor.stage")]
    return groups


def groups_of_block(block: str, geometry: Geometry) -> Groups | None:
    """Return the groups of a block on its own; None where a trace has nothing to say about it."""
    if block == "gpu_top":
        return groups(geometry)
    if block == "memory_channel":
        return {"channel[0]": _channel(geometry, "")}
    if block == "tracker":
        return {"bank[0]": _bank(geometry, ""), "merge": _triggers(geometry, "triggers", slot(3, 1))}
    if block == "arbiter":
        return {"channel[0]": _arbiter()}
    return None


def _struct(lsb: int, layout: data.Layout, path: str) -> Slot:
    return slot(lsb, layout.size, path)


def _decision(at: str, surroundings: list[tuple[str, ...] | None]) -> list[Slot]:
    """Return the lowest bits as in `t3sim.trace.schema.CONDITIONS`; `surroundings` are those outside the arbiter."""
    names = ["drain", "compute_valid", "communication_valid", "communication_waiting", "ready", "grant_compute",
             "grant_communication", "starved", "last_communication"]
    bits = [*((f"{at}{name}",) for name in names), *surroundings, (f"{at}late",), (f"{at}overtaken",)]
    return [*(slot(i, 1, *terms) for i, terms in enumerate(bits) if terms is not None),
            slot(24, 8, f"{at}occupancy"), slot(32, 7, f"{at}threshold"),
            slot(40, 16, f"{at}elapsed"), slot(56, POLICY_BITS, f"{at}policy"),
            slot(192, 16, f"{at}starvation_limit")]


def _channel(geometry: Geometry, at: str) -> list[Slot]:
    there = [(f"{at}{queue}_queue.output__valid",) for queue in ("compute", "inbound", "dma")]
    state = [(f"{at}{name}",) for name in ("access_ready", "take_dma", "dma_able", "inbound_able", "guard.ready")]
    return [*_decision(f"{at}arbiter.", [*there, *state, (f"{at}dram__valid", f"~{at}dram__ready"),
                                         (f"{at}updates__valid", f"{at}updates__ready")]),
            _struct(64, update(geometry), f"{at}updates__payload")]


def _arbiter() -> list[Slot]:
    """Return an arbiter's group.

    Alone it does not know inbound from DMA requests: all communication counts as inbound. It has no request to show.
    """
    there = [("compute_valid",), ("communication_waiting",), None]
    state = [(), None, None, ("communication_valid",), (), ("~ready",), None]
    return _decision("", there + state)


def _bank(geometry: Geometry, at: str) -> list[Slot]:
    bits = ["done", "set_full", "valid", "hit", "complete", "exceeds", "refused", "wrong_family"]
    count, occupied = geometry.tracker.count_bits, (geometry.tracker.sets_per_bank * geometry.tracker.ways).bit_length()
    return [*(slot(i, 1, f"{at}{bit}") for i, bit in enumerate(bits)),
            slot(8, occupied, f"{at}occupied"), slot(32, geometry.dma.region_bits, f"{at}region"),
            slot(64, count, f"{at}count"), slot(96, count, f"{at}room"),
            slot(128, geometry.tracker.ways, f"{at}write"),
            slot(192, geometry.tracker.address_bits, f"{at}address"), _struct(256, update(geometry), f"{at}current")]


def _triggers(geometry: Geometry, stream: str, where: Slot) -> list[Slot]:
    """Return the group of a trigger port. `where`: 0 out as an event, 1 to the DMA table, 2 not known."""
    return [slot(0, 1, f"{stream}__valid"), slot(1, 1, f"{stream}__ready"), where,
            _struct(64, trigger(geometry), f"{stream}__payload")]


def _engine(geometry: Geometry, at: str) -> list[Slot]:
    ids = geometry.tracker.wf_bits + geometry.tracker.wg_bits + geometry.dma.region_bits
    return [slot(0, 1, f"{at}command__valid", f"{at}command__ready"), slot(1, 1, f"{at}finish"),
            slot(2, 1, f"{at}unusable"), slot(3, 1, f"|{at}issued"), slot(8, ids, f"{at}ids"),
            _struct(64, request(geometry), f"{at}line")]


class StructBits(NamedTuple):
    """Lowest bit and width of the fields that updates and triggers share, and of an update's amount."""

    address: int
    region: int
    wf: int
    wg: int
    amount: int
    amount_bits: int
    source: int


class Probes(NamedTuple):
    """The places of the trace outputs, as arguments of the recorder.

    They are the outputs' first words, -1 where there is none, and how their structs are laid out.
    """

    channel: np.ndarray
    bank: np.ndarray
    merge: int
    table: int
    engine: np.ndarray
    ring: int
    update: StructBits
    trigger: StructBits
    address_bits: int
    count_mask: int


def _bits(layout: data.StructLayout) -> StructBits:
    def at(name: str) -> int:
        return layout[name].offset if name in layout.members else 0
    return StructBits(*(at(name) for name in ("address", "region", "wf", "wg", "amount")),
                      layout["amount"].width if "amount" in layout.members else 0, at("source"))


def probes(ports: PortMap, geometry: Geometry) -> Probes:
    def word(name: str) -> int:
        return ports.outputs[PREFIX + name].offset if PREFIX + name in ports.outputs else -1

    def words(name: str) -> np.ndarray:
        return np.array([port.offset for port in ports.outputs.values() if port.name.startswith(f"{PREFIX}{name}[")],
                        np.int64)
    return Probes(words("channel"), words("bank"), word("merge"), word("table"), words("engine"), word("ring"),
                  _bits(update(geometry)), _bits(trigger(geometry)), geometry.tracker.address_bits,
                  (1 << geometry.tracker.count_bits) - 1)


def traced_gpu_design(geometry: Geometry) -> Design:
    """Build the compiled top that shows its inner signals; from the cache if its sources have not changed."""
    return build_component(partial(GpuTop, geometry), NAME, geometry, groups(geometry))
