"""Sections for models of libraries on commercial GPUs: rates by operand, and costs of software."""

import re
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from t3sim.machine.gpu import SplitK, Tile, check_split_k
from t3sim.machine.section import NotNegative, Positive, Section, Share, within


class WidthRates(Section):
    """A number per width of the operands."""

    bf16: Positive  #: also fp16
    fp8: Positive | None = None
    fp4: Positive | None = None


class Kernels(Section):
    """Kernels of the GEMM library, and others that only move data."""

    #: Tiles of the library: rows, columns.
    shapes: Annotated[tuple[Tile, ...], Field(strict=False, min_length=1, max_length=32)]
    #: Tiles for 8-bit operands, if different.
    fp8_shapes: Annotated[tuple[Tile, ...], Field(strict=False, max_length=32)] = ()
    split_k: SplitK
    cluster: Annotated[int, within(1, 16)] = 1  #: compute units that start together, each with a tile
    #: Up to this many rounds, a cluster gets all its tiles before it starts; with more, all but the first are dealt
    #: later; 0: none.
    dealt_rounds: Annotated[int, within(0, 16)] = 0
    tile_ns: NotNegative  #: time of a tile outside its main loop: first loads, last products, stores
    shown_stores: Annotated[float, within(0.0, 1.0)]  #: exposed share of a tile's stores
    unit_bytes_per_ns: Positive  #: bandwidth of one compute unit's loads from the cache
    launch_ns: NotNegative  #: of a kernel alone: start, drain, and the events around it
    next_ns: NotNegative  #: from a kernel's end to the start of the next one on its stream
    call_ns: NotNegative  #: additional time of a framework's call, if the host waits for its end
    memory_efficiency: Share  #: share of the peak for kernels that only move data
    own_load_efficiency: Share | None = None  #: share of the peak for plain loads from own memory
    own_store_efficiency: Share | None = None  #: share of the peak for plain stores to own memory

    @model_validator(mode="after")
    def _whole_k(self) -> "Kernels":
        check_split_k(self.split_k)
        return self


class RingProtocol(Section):
    """Protocol by which a ring's or tree's kernels forward data."""

    base_ns: NotNegative
    hop_ns: NotNegative  #: of a step along a ring
    tree_hop_ns: NotNegative
    efficiency: Share  #: of the wires
    most_gb_per_s: Positive  #: largest bus bandwidth with its flags and channels


class Rings(Section):
    """Collectives of the vendor's library by rings and trees."""

    channels: Annotated[int, within(1, 64)]  #: compute units that a collective occupies
    call_ns: NotNegative  #: shortest time between calls of a framework's process, one per GPU
    #: Time of each GPU's call where one thread calls for several GPUs, as nccl-tests with -g does; NVIDIA/nccl-tests
    #: issue 123: 33.7 us for 8 GPUs, 16.9 for 4.
    thread_call_ns: NotNegative = 4200.0
    launch_ns: NotNegative  #: of each call, without its protocol
    in_switch_base_ns: NotNegative  #: base time of the library's in-switch kernels, which copy through buffers
    ll: RingProtocol
    ll128: RingProtocol
    simple: RingProtocol


class InSwitch(Section):
    """Sums and copies in the switch, by kernels that load and store at multicast addresses."""

    #: Size of a packet's header relative to its payload; requests and acknowledgements cost as much in the other
    #: direction.
    header_share: Share
    block_gb_per_s: Positive  #: rate at which one thread block loads sums: bytes in flight over the latency
    block_store_gb_per_s: Positive  #: rate of one thread block's stores at multicast addresses
    launch_ns: NotNegative
    barrier_ns: NotNegative  #: time of a barrier of all GPUs
    flag_ns: NotNegative  #: time of data that carry their own flag, instead of a barrier


class Direct(Section):
    """Kernels that load or store at all other GPUs: one-shot, two-shot."""

    base_ns: NotNegative  #: launch, and flags of the first phase
    phase_ns: NotNegative  #: time of a barrier before each further phase
    efficiency: Share  #: share of the wires' bandwidth
    packets: bool  #: data may carry flags, which doubles their bytes but avoids the barrier


class Sharing(Section):
    """Losses of concurrent kernels, besides compute units and bytes."""

    kernel_units: Annotated[int, within(0, 512)]  #: compute units of a library collective next to another kernel
    copier_requests: Positive  #: requests in flight of a unit that copies, relative to a unit of any other kernel
    #: Loss of a GEMM's clock to power while links and memory are also busy.
    power_share: Annotated[float, within(0.0, 0.9)]
    steady_share: Share  #: rate of a GEMM among many kernels on a hot GPU, relative to its rate alone
    #: Rate of a unit in a GEMM's kernel that pulls other GPUs' tiles during its products; None: the kernel stores at
    #: the owners.
    pull_gb_per_s: Annotated[float, within(0.01, 1000.0)] | None = None


class Fit(Section):
    """Rows from which a constant of a machine comes."""

    key: str  #: section and name; several with commas between them
    file: str  #: of sim_models/analytic/measured, or of another folder with rows
    rows: str  #: what the scenarios of its rows match, as a regular expression
    #: Of each key, its value without any row: from a document, or another machine's. Not said: that of the machine
    #: that the file extends, if it has one.
    prior: Annotated[tuple[NotNegative, ...], Field(strict=False)] = ()

    @field_validator("rows")
    @classmethod
    def _is_one(cls, text: str) -> str:
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return text

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.key.split(", "))

    @model_validator(mode="after")
    def _priors_are_of_keys(self) -> "Fit":
        if self.prior and len(self.prior) != len(self.keys):
            raise ValueError(f"prior has {len(self.prior)} values for {len(self.keys)} keys: {self.key}")
        return self


class HeldOut(Section):
    """Error of a user's rows of one quantity, each held out of the fit of `t3 calibrate`."""

    quantity: str
    rows: Annotated[int, within(1, 1 << 30)]
    mean_error: NotNegative
    worst: NotNegative


class Measurements(Section):
    """Rows that gave constants, and rows that were held out of a fit."""

    fitted: Annotated[tuple[Fit, ...], Field(strict=False)] = ()
    held_out: Annotated[tuple[HeldOut, ...], Field(strict=False)] = ()
