"""The per-GPU top, compiled: the design that fused runs step, and where its ports are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from t3sim.cosim.component import build_component, component_code
from t3sim.cosim.ports import NONE, Ports
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.gpu_top import GpuTop
from t3sim.rtlsim.amaranth_backend import AmaranthBackend
from t3sim.rtlsim.port_map import PortMap
from t3sim.rtlsim.simulator import Design

NAME = "gpu_top"


def gpu_design(geometry: Geometry) -> Design:
    """Compile the top of this geometry, or take it from the cache if its sources have not changed.

    Raises ToolchainError.
    """
    return build_component(partial(GpuTop, geometry), NAME, geometry)


def amaranth_gpu(geometry: Geometry) -> AmaranthBackend:
    """Make the same top on Amaranth's own simulator: slow, without a compiler."""
    return AmaranthBackend(GpuTop(geometry), component_code(partial(GpuTop, geometry), NAME, geometry)[1])


def model_ports(ports: PortMap, geometry: Geometry) -> Ports:
    """Return word offsets for the lockstep loop. Every port of the top starts at a word."""
    def at(name: str) -> int:
        return ports.port(name).offset

    def each(pattern: str, count: int) -> np.ndarray:
        return np.array([at(pattern.format(i)) for i in range(count)], np.int64)
    channels, lanes = geometry.channel.channels, geometry.dma.egress_lanes
    event = ports.port("events.payload").fields
    ask_valid, ask, ask_ready = ((at(f"asks.{part}") if geometry.dma.ready_groups else NONE)
                                 for part in ("valid", "payload", "ready"))
    return Ports(
        compute_valid=each("compute[{}].valid", channels), compute=each("compute[{}].payload", channels),
        inbound_valid=each("inbound[{}].valid", channels), inbound=each("inbound[{}].payload", channels),
        dram_ready=each("dram[{}].ready", channels), occupancy=each("occupancy[{}]", channels),
        retirement=each("retirement[{}]", channels),
        outbound_valid=each("outbound[{}].valid", lanes), outbound=each("outbound[{}].payload", lanes),
        packet_ready=each("packets[{}].ready", lanes),
        dispatch_valid=at("dispatch.valid"), dispatch=at("dispatch.payload"),
        start=at("start"), ask_valid=ask_valid, ask=ask, head_ready=at("heads.ready"),
        heard_valid=at("heads_in.valid"), heard=at("heads_in.payload"),
        event_ready=at("events.ready"), producer_active=at("producer_active"),
        compute_ready=each("compute[{}].ready", channels), inbound_ready=each("inbound[{}].ready", channels),
        dram_valid=each("dram[{}].valid", channels), dram=each("dram[{}].payload", channels),
        outbound_ready=each("outbound[{}].ready", lanes), packet_valid=each("packets[{}].valid", lanes),
        packet=each("packets[{}].payload", lanes), dispatch_ready=at("dispatch.ready"),
        ask_ready=ask_ready, grant=at("grant"), blocked=at("blocked"), head=at("head"),
        peer_head=each("peer_heads[{}]", geometry.dma.peers), head_valid=at("heads.valid"),
        head_packet=at("heads.payload"),
        event_valid=at("events.valid"), event=at("events.payload"),
        event_wf_lsb=event["wf"].lsb, event_wg_lsb=event["wg"].lsb,
        refused=at("refused"))


def benchmark_gpu(geometry: Geometry, stimulus: np.ndarray, engines: Sequence[str]) -> dict[str, float]:
    """Measure cycles per second of the top on each engine (see `cosim.engine_speed.benchmark`)."""
    from t3sim.cosim.engine_speed import benchmark  # not above: who runs needs no cocotb
    return benchmark(partial(GpuTop, geometry), NAME, stimulus, geometry, engines)


def compare_gpu(geometry: Geometry, stimuli: Callable[[PortMap], Mapping[str, np.ndarray]],
                others: Sequence[str]) -> Iterator[tuple[str, float, dict[str, float]]]:
    """Measure the top beside other simulators (see `cosim.other_simulators.compare_simulators`)."""
    from t3sim.cosim.other_simulators import compare_simulators  # not above: who runs needs no Yosys
    return compare_simulators(partial(GpuTop, geometry), NAME, stimuli, others)
