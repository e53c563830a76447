"""The machine file: its sections and keys, and the loader that refuses what does not fit in one line."""

import difflib
import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from rtl.check_bits import PROTECTIONS
from rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, GeometryError, TrackerGeometry, bits_for
from sim_models.errors import BadInput
from sim_models.machine.dram import Dram
from sim_models.machine.section import Count, NotNegative, Positive, Section, Share
from sim_models.workloads import ELEMENT_BYTES

#: Machines that come with the package: name, file beside this one.
PRESETS = {"t3-table1": "default.toml", "hbm2-reference": "hbm2_reference.toml"}
DEFAULT = "t3-table1"


class MachineError(BadInput):
    """A machine that cannot be read or cannot be. The message names the file, the key and what is allowed."""


class Gpu(Section):
    """Compute units and the tiled GEMM kernel that runs on them."""

    compute_units: Count
    clock_ghz: Positive
    matrix_flop_per_cycle_per_cu: Count
    matrix_efficiency: Share  #: of the peak, in the main loop
    workgroups_per_cu: Count  #: resident at once
    tile_m: Count  #: rows of C per workgroup
    tile_n: Count  #: columns of C per workgroup
    block_k: Count  #: depth of one double-buffered load of A and B
    wavefronts_per_workgroup: Count
    prologue_ns: NotNegative  #: of a workgroup, before its first load
    epilogue_ns: NotNegative  #: between its last multiply-add and its first store
    cu_bytes_per_ns: Positive  #: port between a CU's L1 and the last-level cache, each direction

    @model_validator(mode="after")
    def _tile_splits_into_wavefronts(self) -> "Gpu":
        if self.tile_n % self.wavefronts_per_workgroup:
            raise ValueError(f"tile_n = {self.tile_n} does not split evenly over "
                             f"wavefronts_per_workgroup = {self.wavefronts_per_workgroup}")
        if self.tile_m * ELEMENT_BYTES % 64:
            raise ValueError(f"tile_m = {self.tile_m} does not make tile columns of whole 64-byte requests")
        return self

    @property
    def wavefront_tile_bytes(self) -> int:
        """Output of one wavefront of a full tile."""
        return self.tile_m * self.tile_n // self.wavefronts_per_workgroup * ELEMENT_BYTES

    @property
    def peak_flop_per_ns(self) -> float:
        return self.compute_units * self.matrix_flop_per_cycle_per_cu * self.clock_ghz


class Llc(Section):
    """The last-level cache (L2)."""

    size_bytes: Count
    line_bytes: Count
    ways: Count
    hit_latency_ns: NotNegative  #: from a CU's load to its data
    fill_latency_ns: NotNegative  #: what a miss adds besides the DRAM's own time
    bandwidth_bytes_per_ns: Positive  #: all banks together

    @model_validator(mode="after")
    def _whole_sets(self) -> "Llc":
        if self.size_bytes % (self.line_bytes * self.ways):
            raise ValueError(f"size_bytes = {self.size_bytes} is not a whole number of sets of ways = {self.ways} "
                             f"lines of line_bytes = {self.line_bytes}")
        return self


class Link(Section):
    """The ring's link to the next GPU, in one direction."""

    bandwidth_gb_per_s: Positive  #: 1e9 bytes per second, which is bytes per ns
    latency_ns: NotNegative
    egress_buffer_bytes: Annotated[int, Field(ge=64, le=1 << 30)]  #: what may wait to leave


class Tracker(Section):
    """Sizes of the Tracker (T3 paper, section 4.2.1)."""

    sets: Count
    ways: Count
    banks: Count
    wg_bits: Annotated[int, Field(ge=16, le=24)]  #: at least the 16 bits of the tag that ordinary reads carry there
    count_bits: Count
    protection: Literal[PROTECTIONS]  #: of its memories


class Channels(Section):
    """Memory channels and their controllers."""

    count: Count
    interleave_bytes: Count
    guard_buckets: Count
    dma_fifo: Count
    coalescer_timeout_cycles: Count
    sample_bits: Count


class Dma(Section):
    """The DMA command table and its engines (T3 paper, section 4.2.2)."""

    engines: Count
    regions: Count
    ready_commands: Count
    outstanding_lines: Count
    egress_lanes: Count
    tiles_per_block: Annotated[int, Field(ge=1, le=64)]  #: wavefront tiles that one DMA command moves


class Arbiter(Section):
    """The communication-aware arbiter, MCA (T3 paper, section 4.5); its limits hold for the ring-aware one too."""

    starvation_limit_cycles: Annotated[int, Field(ge=0, le=65535)]  #: 0: never
    #: DRAM queue occupancy from which communication is held back: "auto" lets the hardware choose, "none" never does.
    threshold: Literal["auto", "none"] | Annotated[int, Field(strict=True, ge=1, le=126)]
    #: Means of the producer's DRAM queue occupancy, in quarters of an entry, below which the threshold is
    #: none, 30 and 10; 5 from the last one on.
    monitor_breakpoints: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=0, le=255)], ...], Field(strict=False, min_length=3, max_length=3)]

    @model_validator(mode="after")
    def _rising(self) -> "Arbiter":
        if list(self.monitor_breakpoints) != sorted(self.monitor_breakpoints):
            raise ValueError(f"monitor_breakpoints = {list(self.monitor_breakpoints)} must rise")
        return self


class Collective(Section):
    """Collectives that run as kernels on the CUs: the sequential baseline, and the all-gather."""

    kernel_launch_ns: NotNegative
    workgroups_per_cu: Annotated[int, Field(ge=1, le=64)]  #: of the copy or reduce kernel, resident at once
    workgroup_bytes: Annotated[int, Field(ge=64, le=65536, multiple_of=64)]  #: of the result, per workgroup
    workgroup_overhead_ns: NotNegative  #: a workgroup's own instructions, before its loads and after them


class Machine(Section):
    """One GPU of the ring, all of them alike."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    memory_clock_ghz: Positive  #: the clock of memory controllers and Track & Trigger hardware
    gpu: Gpu
    llc: Llc
    link: Link
    tracker: Tracker
    channels: Channels
    dma: Dma
    arbiter: Arbiter
    collective: Collective
    dram: Dram

    @model_validator(mode="after")
    def _can_be_built(self) -> "Machine":
        if self.dram.channels != self.channels.count:
            raise ValueError(f"[dram] channels = {self.dram.channels} and [channels] count = {self.channels.count} "
                             "must agree")
        geometry = self.geometry()
        if self.tracker.ways < self.gpu.wavefronts_per_workgroup:
            raise ValueError(f"[tracker] ways = {self.tracker.ways}: a workgroup of [gpu] wavefronts_per_workgroup = "
                             f"{self.gpu.wavefronts_per_workgroup} needs as many in its set, or it could never start")
        updates = 2 * self.gpu.wavefront_tile_bytes
        if updates >= 1 << geometry.tracker.count_bits:
            raise ValueError(f"[tracker] count_bits = {self.tracker.count_bits} cannot count the {updates} bytes that "
                             f"a wavefront tile of {self.gpu.wavefront_tile_bytes} bytes receives in a ring")
        if self.link.egress_buffer_bytes < self.gpu.tile_m * ELEMENT_BYTES:
            raise ValueError(f"[link] egress_buffer_bytes = {self.link.egress_buffer_bytes} does not hold the "
                             f"{self.gpu.tile_m * ELEMENT_BYTES} bytes of one tile column")
        if self.gpu.compute_units * self.collective.workgroups_per_cu > 1 << 16:
            raise ValueError(f"[collective] workgroups_per_cu = {self.collective.workgroups_per_cu} on [gpu] "
                             f"compute_units = {self.gpu.compute_units} are more than 65536 workgroups at once")
        if self.dma.tiles_per_block > self.gpu.wavefronts_per_workgroup:
            raise ValueError(f"[dma] tiles_per_block = {self.dma.tiles_per_block} is more than [gpu] "
                             f"wavefronts_per_workgroup = {self.gpu.wavefronts_per_workgroup}")
        return self

    def geometry(self) -> Geometry:
        """Sizes of this machine's Track & Trigger hardware. Raises `GeometryError`."""
        return Geometry(
            tracker=TrackerGeometry(
                sets=self.tracker.sets, ways=self.tracker.ways, banks=self.tracker.banks,
                wg_bits=self.tracker.wg_bits, count_bits=self.tracker.count_bits,
                protection=self.tracker.protection,
                wf_bits=bits_for(self.gpu.wavefronts_per_workgroup)),
            channel=ChannelGeometry(
                channels=self.channels.count, interleave_bytes=self.channels.interleave_bytes,
                queue_entries=self.dram.queue_entries, guard_buckets=self.channels.guard_buckets,
                dma_fifo=self.channels.dma_fifo, coalescer_timeout_cycles=self.channels.coalescer_timeout_cycles,
                sample_bits=self.channels.sample_bits),
            dma=DmaGeometry(
                regions=self.dma.regions, engines=self.dma.engines, ready_commands=self.dma.ready_commands,
                outstanding_lines=self.dma.outstanding_lines, egress_lanes=self.dma.egress_lanes))


def load_machine(name_or_path: str | Path = DEFAULT) -> Machine:
    """A machine by the name of a preset, or from a TOML file.

    A file either has every key, or starts with `extends = "NAME"` and has only those that differ. Raises
    `MachineError`, with one line that names the file, the section, the key and what is allowed."""
    where, content = _read(str(name_or_path), ())
    try:
        return Machine.model_validate(content)
    except ValidationError as error:
        raise MachineError(f"{where}: {_explain(error)}") from None
    except GeometryError as error:
        raise MachineError(f"{where}: {error}") from None


def _read(name: str, seen: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """File name to show and merged content."""
    if name in seen:
        raise MachineError(f"machine {name!r} extends itself: {' -> '.join((*seen, name))}")
    try:
        if name in PRESETS:
            raw = resources.files(__package__).joinpath(PRESETS[name]).read_bytes()
        else:
            raw = Path(name).read_bytes()
    except FileNotFoundError:
        raise MachineError(f"machine {name!r} is neither a file nor one of {', '.join(sorted(PRESETS))}") from None
    except OSError as error:
        raise MachineError(f"machine file {name!r} cannot be read: {error.strerror}") from None
    try:
        content = tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MachineError(f"{name}: not a TOML file: {error}") from None
    base_name = content.pop("extends", None)
    if base_name is None:
        return name, content
    if not isinstance(base_name, str):
        raise MachineError(f"{name}: extends = {base_name!r} is not the name of a machine")
    if base_name not in PRESETS:  # a file named by a file is looked for beside it
        base_name = str(Path(name).parent / base_name)
    _, base = _read(base_name, (*seen, name))
    return name, _merge(base, content)


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        both_sections = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merge(base[key], value) if both_sections else value
    return merged


def _explain(error: ValidationError) -> str:
    """The one fault to name: an unknown key before the missing one that it was meant to be."""
    order = {"extra_forbidden": 0, "missing": 2}
    faults = sorted(error.errors(include_url=False), key=lambda fault: order.get(fault["type"], 1))
    more = f" ({len(faults) - 1} more of this kind or others)" if len(faults) > 1 else ""
    return _explain_one(faults[0]) + more


def _explain_one(fault: dict[str, Any]) -> str:
    *sections, key = fault["loc"] or ("",)
    if sections and isinstance(key, int):  # an element of a list: name the list
        sections, key = sections[:-1], f"{sections[-1]}[{key}]"
    place = f"[{'.'.join(map(str, sections))}] " if sections else ""
    match fault["type"]:
        case "extra_forbidden":
            allowed = _allowed_keys(sections)
            close = _closest(str(key), allowed)
            return f"{place}{key} is unknown; " + (f"did you mean {close}?" if close else
                                                   f"allowed are {', '.join(sorted(allowed))}")
        case "missing":
            return f"{place}{key} is missing (a file with `extends = \"{DEFAULT}\"` needs only what differs)"
        case "value_error":
            place = f"[{'.'.join(map(str, fault['loc']))}] " if fault["loc"] else ""
            return place + str(fault["ctx"]["error"])
        case "model_type":
            return f"{place}{key} = {fault['input']!r} must be a section, [{key}]"
        case _:
            return f"{place}{key} = {fault['input']!r}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


def _allowed_keys(sections: list[str]) -> list[str]:
    model: Any = Machine
    for section in sections:
        model = model.model_fields[section].annotation
    keys = list(model.model_fields)
    return keys if sections else [*keys, "extends"]


_UNITS = {"ns", "us", "ms", "s", "cycles", "bytes", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "hz", "mhz", "ghz",
          "gbps", "gbit", "per"}


def _stem(key: str) -> str:
    """The key without its unit."""
    words = key.split("_")
    while len(words) > 1 and words[-1].lower() in _UNITS:
        words.pop()
    return "_".join(words)


def _closest(key: str, allowed: list[str]) -> str | None:
    for other in allowed:
        if _stem(other) == _stem(key):
            return other
    matches = difflib.get_close_matches(key, allowed, n=1, cutoff=0.6)
    return matches[0] if matches else None
