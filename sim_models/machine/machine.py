"""The machine: one record, whose sections are None if its file has none of them."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from t3sim.base.line import LINE_BYTES
from t3sim.machine.closed_form import Accelerator, Uncertainty
from t3sim.machine.dram import Dram
from t3sim.machine.engines import Engine, Power, Stream
from t3sim.machine.files import SAME
from t3sim.machine.gpu import ELEMENT_BYTES, Gpu, LlcSection, MemoryCacheSection, MemorySection, Occupancy
from t3sim.machine.hardware import LONGEST_STARVATION, Arbiter, Channels, Dma, SwitchSection, Tracker
from t3sim.machine.levels import CYCLE, Level
from t3sim.machine.libraries import Direct, InSwitch, Kernels, Measurements, Rings, Sharing, WidthRates
from t3sim.machine.links import Cards, LinkSection, NetworkSection, Tier, WiresSection
from t3sim.machine.section import Count, NotNegative, Section, is_read, left_out, needed_keys, section_of, within
from t3sim.machine.software import CollectiveSection, Host, KernelSection, LibrarySection, Signals
from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, TrackerGeometry, bits_for

_LONGEST_STEP_CYCLES = 100_000  #: half of `engine.end.IDLE_LIMIT`

#: Keys that a file may leave out, and those from which they follow.
_FOLLOWS = (*((key, keys) for keys in SAME for key in keys),
            (("wires", "gb_per_s"), (("link", "bandwidth_gb_per_s"),)))


class Machine(Section):
    """Equal GPUs, the links between them, and their software.

    `load_machine` returns a machine with the sections and keys that one level reads; all others are None.
    """

    name: Annotated[str, Field(min_length=1, max_length=80)]
    #: The clock of memory controllers and Track & Trigger hardware.
    memory_clock_ghz: Annotated[float, within(0.1, 10)] = left_out()
    gpu: Gpu = left_out()
    occupancy: Occupancy | None = None  #: None: kernels that state their registers cannot run
    llc: LlcSection = left_out()
    memory_cache: MemoryCacheSection | None = None  #: between memory channels and DRAM
    link: LinkSection = left_out()
    tracker: Tracker = left_out()
    channels: Channels = left_out()
    dma: Dma = left_out()
    arbiter: Arbiter = left_out()
    collective: CollectiveSection = left_out()
    dram: Dram = left_out()
    switch: SwitchSection | None = None
    network: NetworkSection | None = None  #: if nodes are joined
    gpus: Annotated[int, within(1, 72)] = left_out()  #: of a node
    memory: MemorySection = left_out()
    library: LibrarySection = left_out()
    host: Host = left_out()
    signals: Signals | None = None  #: of persistent kernels
    engines_per_gpu: Annotated[int, Field(ge=1, le=1024)] = left_out()
    stream: Stream = left_out()
    engine: Engine = left_out()
    kernel: KernelSection = left_out()
    power: Power = left_out()
    topology: str = left_out()  #: as in `named_topology`
    accelerator: Accelerator = left_out()
    gpus_per_node: Count = left_out()
    #: Time of an iteration outside the model: input, loss scaling, logging.
    iteration_ns: NotNegative = left_out()
    #: Machine of the cycle level with these GPUs; a file that extends this one is the same with its changes.
    cycle_machine: str | None = None
    intra: Tier = left_out()
    inter: Tier = left_out()
    uncertainty: Uncertainty = left_out()
    peak: WidthRates = left_out()  #: TFLOP/s, dense
    sustained: WidthRates = left_out()  #: share of the peak in a large GEMM's main loop, limited by clock and power
    kernels: Kernels = left_out()
    wires: WiresSection = left_out()
    rings: Rings = left_out()
    in_switch: InSwitch | None = None
    direct: Direct = left_out()
    cards: Cards | None = None
    sharing: Sharing = left_out()
    measured: Measurements | None = None

    @cached_property
    def lineage(self) -> tuple[str, ...]:
        """Its file and those that it extends, nearest first, without files before the first that changes a constant.

        None for a machine that `load_machine` did not make.
        """
        return ()

    def with_lineage(self, files: Iterable[str]) -> Self:
        """Return the machine with its files, which are no part of what it is: equal machines may have others."""
        machine = self.model_copy()
        vars(machine)["lineage"] = tuple(files)
        return machine

    def changed(self, **sections: Mapping[str, Any]) -> Self:
        """Return the machine with other values of keys, by their sections; they are not checked."""
        return self.model_copy(update={name: getattr(self, name).model_copy(update=keys)
                                       for name, keys in sections.items()})

    def __hash__(self) -> int:
        """Hash what tells machines of closed forms apart, in a fifth of the time that all sections take."""
        return hash((self.name, self.kernels, self.sustained))

    def __repr__(self) -> str:
        parts = [name for name in type(self).model_fields if name != "name" and getattr(self, name) is not None]
        return f"<Machine {self.name}: {', '.join(parts)}>"

    __str__ = __repr__

    @field_validator("topology")
    @classmethod
    def _is_one(cls, text: str) -> str:
        from t3sim.machine.topologies import named_topology

        named_topology(text)
        return text

    @model_validator(mode="after")
    def _agrees(self) -> "Machine":
        """Refuse keys that contradict each other, and set those that follow from others."""
        for keys in SAME:
            stated = [("[{}] {}".format(*key), value) for key in keys if (value := _at(self, *key)) is not None]
            for (first, value), (second, other) in pairwise(stated):
                if value != other:
                    raise ValueError(f"{first} = {value} and {second} = {other} must agree")
        machine = self
        for key, others in _FOLLOWS:
            values = [value for other in others if (value := _at(self, *other)) is not None]
            if values and _at(self, *key) is None:
                machine = machine._with(key, values[0])
        return machine

    def _with(self, section_and_key: tuple[str, str], value: Any) -> "Machine":
        """Return the machine with a key of a section that it has; without if the key does not allow the value."""
        name, key = section_and_key
        section = getattr(self, name)
        if section is None:
            return self
        try:
            checked = type(section).model_validate({**section.model_dump(), key: value})
        except ValidationError:
            return self
        return self.model_copy(update={name: checked})

    @model_validator(mode="after")
    def _can_be_simulated(self) -> "Machine":
        if not self.lacks(CYCLE):
            self._check_sizes()
            self._check_speeds()
        return self

    def _check_sizes(self) -> None:
        if self.dram.channels != self.channels.count:
            raise ValueError(f"[dram] channels = {self.dram.channels} and [channels] count = {self.channels.count} "
                             "must agree")
        if self.gpu.compute_units % self.llc.parts:
            raise ValueError(f"[llc] parts = {self.llc.parts}: must divide [gpu] compute_units = "
                             f"{self.gpu.compute_units}")
        if self.llc.slices % self.channels.count:
            raise ValueError(f"[llc] slices = {self.llc.slices}: 0 or a multiple of [channels] count = "
                             f"{self.channels.count} is needed")
        self.geometry()  # which refuses sizes that no hardware is made of
        if self.memory_cache:
            self.memory_cache.sets(self.channels.count)
            if self.dram.scheduler == "gpgpusim":
                raise ValueError("[dram] scheduler = 'gpgpusim': with [memory_cache] only 'fr_fcfs' is allowed")
        if self.tracker.ways < self.gpu.wavefronts_per_workgroup:
            raise ValueError(f"[tracker] ways = {self.tracker.ways}: a workgroup of [gpu] wavefronts_per_workgroup = "
                             f"{self.gpu.wavefronts_per_workgroup} needs as many in its set, or it could never start")
        if self.dma.ready_commands < self.gpu.wavefronts_per_workgroup:
            raise ValueError(f"[dma] ready_commands = {self.dma.ready_commands}: a workgroup of [gpu] "
                             f"wavefronts_per_workgroup = {self.gpu.wavefronts_per_workgroup} may make as many, or it "
                             "could never start")
        updates = 2 * self.gpu.wavefront_tile_bytes
        if updates >= 1 << self.tracker.count_bits:
            raise ValueError(f"[tracker] count_bits = {self.tracker.count_bits} cannot count the {updates} bytes that "
                             f"a wavefront tile of {self.gpu.wavefront_tile_bytes} bytes receives in a ring (tile_m x "
                             "tile_n over wavefronts_per_workgroup)")
        for name in ("egress_buffer_bytes", "store_buffer_bytes"):
            size = getattr(self.link, name)
            if size is not None and size < self.gpu.tile_m * ELEMENT_BYTES:
                raise ValueError(f"[link] {name} = {size} does not hold the {self.gpu.tile_m * ELEMENT_BYTES} bytes of "
                                 "one tile column")
        if self.dma.tiles_per_block > self.gpu.wavefronts_per_workgroup:
            raise ValueError(f"[dma] tiles_per_block = {self.dma.tiles_per_block} is more than [gpu] "
                             f"wavefronts_per_workgroup = {self.gpu.wavefronts_per_workgroup}")

    def _check_speeds(self) -> None:
        """Refuse compute units whose steps take so long that the run would be reported as a deadlock."""
        gpu, residents = self.gpu, self.gpu.workgroups_per_cu
        flop = 2 * gpu.tile_m * gpu.tile_n * gpu.block_k * residents
        step_bytes = max((gpu.tile_m + gpu.tile_n) * gpu.block_k, gpu.tile_m * gpu.tile_n) * ELEMENT_BYTES * residents
        matrix = gpu.matrix_flop_per_cycle_per_cu, gpu.matrix_efficiency
        rates = {"matrix_flop_per_cycle_per_cu = {}, matrix_efficiency = {}".format(*matrix):
                 flop / (matrix[0] * matrix[1] * gpu.clock_ghz),
                 f"cu_bytes_per_ns = {gpu.cu_bytes_per_ns}": step_bytes / gpu.cu_bytes_per_ns}
        for rate, ns in rates.items():
            cycles = ns * self.memory_clock_ghz
            if cycles > _LONGEST_STEP_CYCLES:
                raise ValueError(f"[gpu] {rate}: a step of block_k = {gpu.block_k}, workgroups_per_cu = {residents} "
                                 f"takes {cycles:.1g} memory cycles, more than {_LONGEST_STEP_CYCLES}")

    def lacks(self, level: Level) -> list[str]:
        """List the sections that a level requires and this machine lacks, or the keys if it has all sections."""
        fields = type(self).model_fields
        absent = [name for name in level.needs if getattr(self, name) is None]
        return [f"[{name}]" for name in absent if section_of(fields[name])] or absent or [
            f"[{name}] {key}" for name in (*level.needs, *level.takes)
            if isinstance(section := getattr(self, name), Section)
            for key in needed_keys(type(section), level) if getattr(section, key) is None]

    def part(self, level: Level) -> "Machine":
        """Return the machine with only the sections and keys that a level reads."""
        sections = {}
        for name in type(self).model_fields:
            section = getattr(self, name)
            if name not in level.reads:
                sections[name] = None
            elif isinstance(section, Section):
                defaults = {key: field.default for key, field in type(section).model_fields.items()
                            if not is_read(field, level)}
                sections[name] = section.model_copy(update=defaults)
        return self.model_copy(update=sections)

    def described(self, level: Level = CYCLE) -> dict[str, Any]:
        """Return the sections and keys that a level reads, for JSON."""
        fields = type(self).model_fields
        return {name: {key: one for key, one in value.items()
                       if is_read(kind.model_fields[key], level)} if value and (kind := section_of(fields[name]))
                else value
                for name, value in self.model_dump(mode="json").items()
                if name in level.reads}

    @property
    def starvation_limit_cycles(self) -> int:
        """Memory cycles since communication last went at a channel after which it goes first; 0: never.

        Derived: a GPU writes and reads each line of a ring once, so a channel that serves communication this often
        keeps up with the link. At least 1, for a link as fast as the channels.
        """
        if self.arbiter.starvation_limit_cycles != "derived":
            return self.arbiter.starvation_limit_cycles
        link_bytes_per_cycle = self.link.bandwidth_gb_per_s / self.memory_clock_ghz
        between_requests = int(self.channels.count * LINE_BYTES / (2 * link_bytes_per_cycle))
        return min(max(between_requests, 1), LONGEST_STARVATION)

    def geometry(self) -> Geometry:
        """Return the sizes of this machine's Track & Trigger hardware. Raises `GeometryError`."""
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
                sample_bits=self.channels.sample_bits, more_bits=self.channels.more_bits,
                sums="plain" if self.channels.sums is None else self.channels.sums),
            dma=DmaGeometry(
                regions=self.dma.regions, block_shapes=self.dma.block_shapes, routes=self.dma.routes,
                copies=self.dma.copies, engines=self.dma.engines, ready_commands=self.dma.ready_commands,
                outstanding_lines=self.dma.outstanding_lines, egress_lanes=self.dma.egress_lanes,
                peers=self.dma.peers, ready_groups=self.dma.ready_groups))

    @property
    def dram_peak_bytes_per_ns(self) -> float:
        """The rate of all channels' data buses."""
        return self.dram.peak_bytes_per_cycle * self.dram.channels * self.memory_clock_ghz

    @property
    def memory_bytes_per_ns(self) -> float:
        """The rate of a library's kernels that only move data."""
        return self.memory.bandwidth_gb_per_s * self.kernels.memory_efficiency

    def without_software(self) -> "Machine":
        """Return the same hardware for the event level of tiles, with a library and a host that take no time."""
        return self.model_copy(update={
            "library": self.library.model_copy(update={"step_ns": self.link.latency_ns, "base_ns": 0.0, "small": None}),
            "host": Host(launch_ns=0.0, event_ns=0.0, copy_ns=0.0, call_ns=0.0)})


def _at(machine: Machine, section: str, key: str) -> Any:
    return getattr(getattr(machine, section), key, None)
