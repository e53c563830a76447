"""Formats of an exchange's sums in memory and on links, if they differ from the layer's.

Memory that adds in 32 bits holds 32 bits per element: compute units store them, and DMA reads them. The near-memory ALU
rounds lines for a link to the link's format, and widens them at their destination.
"""

from dataclasses import dataclass, replace
from math import ceil, log2, sqrt

from t3sim.base.errors import BadInput, choices
from t3sim.cosim.driver.driver import MemorySum
from t3sim.machine import Machine
from t3sim.machine.formats import SCALE_BIAS
from t3sim.machine.links import LinkSection
from t3sim.rtl.formats import FIXED, NUMBERS, PLAIN_SUMS, SUMS
from t3sim.workload.workloads import Workload

ACCUMULATIONS = ("fp32", "fixed")  #: besides the layer's own format
#: Bits of an element on a link; blocks have a scale of 8 bits for 32 elements.
_WIRES = {"fp32": 32.0, "e4m3": 8 + 8 / 32, "e5m2": 8 + 8 / 32}
BLOCKS = ("e4m3", "e5m2")
OPERATORS = ("gemm-rs", "gemm-ar", "moe-combine")  #: whose sums may be wider


@dataclass(frozen=True)
class Sums:
    """Formats by name; None: the layer's own."""

    accumulate: str | None = None  #: fp32, or fixed: a fixed point of 32 bits, whose sums no order changes
    wire: str | None = None  #: fp32, or e4m3 or e5m2 in blocks of 32 with a scale

    @property
    def name(self) -> str:
        """The name for files; empty if both formats are the layer's own."""
        return "-".join(filter(None, (self.accumulate and f"in-{self.accumulate}", self.wire and f"by-{self.wire}")))

    def words(self, workload: Workload) -> str:
        """Describe the formats: `sums in fp32, bf16 on links`."""
        return f"sums in {self.accumulate or workload.dtype}, {self.wire or workload.dtype} on links"

    @property
    def in_any_order(self) -> bool:
        """Say whether sums have the same bits in any order of arrival."""
        return self.accumulate == "fixed"

    def to_json(self) -> dict[str, str]:
        return {name: value for name, value in (("accumulate", self.accumulate), ("wire", self.wire)) if value}

    def wire_bytes(self, workload: Workload) -> float:
        """Return the bytes of an element on a link."""
        return _WIRES[self.wire] / 8 if self.wire else workload.format.bytes

    def of(self, workload: Workload) -> Workload:
        """Return the workload with these formats of sums."""
        return replace(workload, sums=self.accumulate, wire=self.wire)

    def carrying(self, workload: Workload, link: LinkSection) -> LinkSection:
        """Return the link with its bandwidth in lines of memory, which are shorter on it."""
        more = self.of(workload).moved_bytes / self.wire_bytes(workload)
        return link.model_copy(update={"bandwidth_gb_per_s": link.bandwidth_gb_per_s * more})

    def seen_from_memory(self, machine: Machine, workload: Workload) -> Machine:
        """Return the machine with links and buffers in lines of memory, and with near-memory ALUs for these sums.

        A machine whose channels have their own `sums` keeps them.
        """
        more = self.of(workload).moved_bytes / self.wire_bytes(workload)
        link = self.carrying(workload, machine.link).model_copy(update={
            name: round(getattr(machine.link, name) * more)
            for name in ("egress_buffer_bytes", "store_buffer_bytes", "head_bytes")
            if getattr(machine.link, name) is not None})
        card = machine.network and machine.network.model_copy(
            update={"bandwidth_gb_per_s": machine.network.bandwidth_gb_per_s * more})
        channels, needed = machine.channels, "+".join(sums_in_memory(self.of(workload)))
        if needed and channels.sums is None:
            channels = channels.model_copy(update={"sums": needed})
        return machine.model_copy(update={"link": link, "network": card, "channels": channels})

    def check(self, operator: str, algorithm: str) -> None:
        """Refuse formats that there are not, or that an exchange has not. Raises BadInput."""
        if self.accumulate not in (None, *ACCUMULATIONS):
            raise BadInput(f"exchange.accumulate = {self.accumulate!r} is unknown: allowed are the layer's dtype, "
                           f"{choices(self.accumulate, ACCUMULATIONS)}")
        if self.wire not in (None, "fp32", *BLOCKS):
            raise BadInput(f"exchange.wire = {self.wire!r} is unknown: allowed are the layer's dtype, "
                           f"{choices(self.wire, ('fp32', *BLOCKS))}")
        if self.wire and self.accumulate != "fp32":
            raise BadInput(f"exchange.wire = {self.wire} needs exchange.accumulate = fp32: sums are as wide as what "
                           "arrives, or wider")
        if self.accumulate and operator not in OPERATORS:
            raise BadInput(f"exchange.accumulate = {self.accumulate} is of a GEMM's sums: it needs layer.operator = "
                           f"{' or '.join(OPERATORS)}")
        if self.wire in BLOCKS and (operator, algorithm) != ("gemm-rs", "direct"):
            raise BadInput(f"exchange.wire = {self.wire} is made by compute units, not of sums by the near-memory "
                           "ALU: it needs layer.operator = gemm-rs and exchange.algorithm = direct")

    def check_dtype(self, dtype: str) -> None:
        """Refuse a layer's format that these sums are not for. Raises BadInput."""
        if self.accumulate == "fixed" and dtype == "fp16":
            raise BadInput("exchange.accumulate = fixed is of bf16 and fp32: layer.dtype = fp16 does not go with it")


def sums_of(accumulate: str | None, wire: str | None, dtype: str) -> Sums:
    """Return sums of a layer of a format; its own is named or not. Raises BadInput."""
    sums = Sums(*(None if one == dtype else one for one in (accumulate, wire)))
    sums.check_dtype(dtype)
    return sums


def _sum_names(workload: Workload) -> tuple[str, str]:
    """Return the ALU's operations for compute units' products, which are fp32, and for packets from links."""
    return tuple(form if form == workload.sums else f"{form}{'-blocks' * (form in BLOCKS)}-in-{workload.sums}"
                 for form in ("fp32", workload.wire or workload.dtype))


def sums_in_memory(workload: Workload) -> tuple[str, ...]:
    """Return the additions that a workload needs besides plain sums."""
    if workload.sums is None:
        return ()
    plain = {one.name for one in PLAIN_SUMS}
    return tuple(sorted({*_sum_names(workload)} - plain, key=NUMBERS.__getitem__))


def region_sum(workload: Workload) -> MemorySum | None:
    """Return the sum in a region's register, for packets that arrive under the region; None: plain sums.

    The unit of a fixed point is such that a sum of all GPUs' parts fits up to eight of its standard deviations, of
    matrices whose elements have a standard deviation of 1.
    """
    if not sums_in_memory(workload):
        return None
    name = _sum_names(workload)[1]
    if SUMS[NUMBERS[name]].total is not FIXED:
        return MemorySum(name)
    return MemorySum(name, SCALE_BIAS - 1 + ceil(log2(8 * sqrt(workload.k * workload.tp))))


def own_sum(workload: Workload) -> str:
    """Return the sum for compute units' stores, which is independent of the region's packets."""
    return _sum_names(workload)[0]
