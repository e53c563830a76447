"""Every block by name, made from a geometry alone, for testbenches and campaigns."""

from collections.abc import Callable
from dataclasses import replace

from amaranth.lib import wiring

from t3sim.rtl.arbiter.arbiter import Arbiter
from t3sim.rtl.arbiter.intensity_monitor import IntensityMonitor
from t3sim.rtl.arbiter.ring_monitor import RingMonitor
from t3sim.rtl.channel.coalescer import Coalescer
from t3sim.rtl.channel.memory_channel import MemoryChannel
from t3sim.rtl.channel.nmc_alu import NmcAlu
from t3sim.rtl.channel.order_guard import OrderGuard
from t3sim.rtl.channel.wide_alu import WideAlu
from t3sim.rtl.control.config_bus import ConfigBus
from t3sim.rtl.control.watchdog import WatchDog
from t3sim.rtl.dma.address_generator import AddressGenerator
from t3sim.rtl.dma.command_queue import CommandQueue
from t3sim.rtl.dma.dma_table import DmaTable
from t3sim.rtl.dma.line_router import LineRouter
from t3sim.rtl.formats import PLAIN_SUMS, SUMS
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.gpu_top import GpuTop
from t3sim.rtl.layouts import tracker_entry, tracker_tag
from t3sim.rtl.link.egress import Egress
from t3sim.rtl.link.ingress import Ingress
from t3sim.rtl.switch.merge_table import MergeTable
from t3sim.rtl.switch.switch import Switch
from t3sim.rtl.track.corrected_row import CorrectedRow
from t3sim.rtl.track.memory_codec import MemoryCodec
from t3sim.rtl.track.tracker import TrackerBank
from t3sim.rtl.track.trigger_merge import TriggerMerge
from t3sim.rtl.track.update_network import UpdateNetwork
from t3sim.rtl.window.dispatch_window import DispatchWindow
from t3sim.rtl.window.head_exchange import HeadExchange
from t3sim.rtl.window.ready_table import ReadyTable


def _protection(geometry: Geometry) -> str:
    """Return the Tracker's protection, or "secded" if it has none."""
    return "secded" if geometry.tracker.protection == "none" else geometry.tracker.protection


def _queued(geometry: Geometry) -> Geometry:
    if geometry.dma.queue_commands:
        return geometry
    return replace(geometry, dma=replace(geometry.dma, queue_commands=4))


def _waited_for(geometry: Geometry) -> Geometry:
    if geometry.dma.ready_groups:
        return geometry
    return replace(geometry, dma=replace(geometry.dma, ready_groups=4))


def _adding(geometry: Geometry) -> Geometry:
    """Return the geometry with near-memory sums; all of them if it has none."""
    if geometry.channel.wide_sums:
        return geometry
    every = "+".join(one.name for one in SUMS if one not in PLAIN_SUMS)
    return replace(geometry, channel=replace(geometry.channel, sums=every))


BLOCKS: dict[str, Callable[[Geometry], wiring.Component]] = {
    "coalescer": Coalescer,
    "update_network": UpdateNetwork,
    "tracker": TrackerBank,
    "memory_codec": lambda geometry: MemoryCodec(_protection(geometry), tracker_tag(geometry).size),
    "corrected_row": lambda geometry: CorrectedRow(
        _protection(geometry), geometry.tracker.ways, tracker_tag(geometry), tracker_entry(geometry)),
    "trigger_merge": TriggerMerge,
    "dispatch_window": DispatchWindow,
    "head_exchange": HeadExchange,
    "dma_table": DmaTable,
    "command_queue": lambda geometry: CommandQueue(_queued(geometry)),
    "ready_table": lambda geometry: ReadyTable(_waited_for(geometry)),
    "address_generator": AddressGenerator,
    "line_router": LineRouter,
    "egress": Egress,
    "ingress": Ingress,
    "config_bus": lambda geometry: ConfigBus(geometry, reporters=3),
    "arbiter": Arbiter,
    "order_guard": OrderGuard,
    "memory_channel": MemoryChannel,
    "intensity_monitor": IntensityMonitor,
    "ring_monitor": RingMonitor,
    "watchdog": WatchDog,
    "nmc_alu": lambda _: NmcAlu(column_bytes=8),
    "wide_alu": lambda geometry: WideAlu(_adding(geometry), column_bytes=8),
    "merge_table": MergeTable,
    "switch": Switch,
    "gpu_top": GpuTop,
}
