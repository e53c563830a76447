"""Data mode: a GEMM fused with a collective, with real numbers, every GPU with its own RTL.

Each device has its own matrices A (M x K) and B (K x N) in the workload's format (fp16, bf16, fp32). Its partial
product, rounded to that format, is what its stores carry; with K in parts (split-K), each part's, so rounded.
Whenever DRAM performs an op-and-store, the RTL's near-memory ALU adds the arriving columns to what memory holds at that
moment; a plain store replaces it. Whenever DRAM performs a read for DMA, what memory holds at that moment is what the
link carries. So a trigger that comes too early, a read that overtakes a write, a line lost, sent twice or sent to the
wrong place leaves other bits in some element, or another number of accesses to it. Both are compared for every element
of every device.

The DRAM model performs requests for one line in the order in which they came: in its queue no read overtakes a write.
The hardware promises more: while a read is in the DRAM queue, no tracked write to its line is
(rtl/channel/order_guard.py). With `overtaking_reads` a DMA read finds what memory held when it *entered* the queue, as
with a controller that lets it pass every write there.

Memory starts as -0.0, the identity of IEEE addition (+0.0 would turn a first -0.0 into +0.0): the first op-and-store of
an element leaves its operand, bit for bit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t3sim.base.compiled.jit import compiled
from t3sim.base.compiled.words import words_at
from t3sim.base.line import LINE_BYTES
from t3sim.collectives.schedule import Action, Schedule
from t3sim.collectives.schedule.placement import NOWHERE, Placement
from t3sim.cosim.gpu import amaranth_gpu, gpu_design, model_ports
from t3sim.cosim.nmc_alu import COLUMN_BYTES, DTYPES, OPERATIONS, WIDE_OPERATIONS, compiled_alu, compiled_wide_alu
from t3sim.gpu.engine.observers import Observer
from t3sim.gpu.engine.switch_hardware import SwitchNumbers
from t3sim.gpu.fabric import bits
from t3sim.gpu.fabric.queues import number_of, part_sent, sender_of
from t3sim.gpu.fabric.switch import line_at
from t3sim.machine.formats import FORMATS, FP16, FP32, Format, WideSums
from t3sim.rtl.formats import NUMBERS
from t3sim.rtlsim.simulator import Design, Simulator
from t3sim.runs import build
from t3sim.runs.failure import SimulationError
from t3sim.runs.fused import FusedRun
from t3sim.runs.near_memory import Alu, add, alu_of, control, sum_in_turn
from t3sim.runs.plan import Plan, Policy
from t3sim.runs.sums import own_sum, region_sum, sums_in_memory
from t3sim.runs.switch_rtl import SwitchRtl
from t3sim.workload.workloads import Workload

if TYPE_CHECKING:
    from t3sim.gpu.engine.hardware import Hardware
    from t3sim.gpu.fabric.bits import RequestBits
    from t3sim.gpu.fabric.state import SwitchState
    from t3sim.gpu.state import Sim

# How an element was accessed: sources of op-and-stores, as in bits.py, the read of the DMA engine, sources of stores.
ACCESSES = ("local op-and-store", "op-and-store by a peer's store", "op-and-store by a peer's DMA", "DMA read",
            "local store", "store by a peer's store", "store by a peer's DMA")
DMA_READ, PLAIN = 3, 4
OPERAND = len(ACCESSES)  #: a read of the GEMM's
_SUM = 1 << 15  #: in `Ledger.arrival_order`, with a number of parts: a sum that the switch's RTL has made of so many
_NAMES = (*ACCESSES, "read of the GEMM's")
FAULTS = {1: "outside the output", 2: "of what the upstream GPU has not read",
          3: "without an answer from the near-memory ALU", 4: "of an operand that has not come"}
OUTSIDE, NOT_READ, ALU_SILENT, TOO_EARLY = FAULTS


class Ledger(NamedTuple):
    """Numbers as bits, [device, element], column-major with the output's pitch; and what was done to them.

    uint32 whatever the format, so that one compiled loop serves all."""

    product: np.ndarray  # uint32 [device and part of K, element]
    parts: int
    memory: np.ndarray  # uint32
    fetched: np.ndarray  # uint32: what a DMA read found
    summed: np.ndarray  # uint32: what a switch made of others' products; no devices: it adds nothing
    sent: np.ndarray  # uint32 [device and part of K, element]: products as links carry them
    stored: np.ndarray  # uint32, the same: products as memory holds them
    shift: int  # log2 of an element's bytes in memory
    sent_shift: int  # and on a link
    identity: int  # what is added to it, is it
    # What the ALU is asked for, int64 [device, region], as the region's register in the RTL says:
    own_control: np.ndarray  # to add a GPU's own product
    arriving_control: np.ndarray  # to add what a link brought
    draining_control: np.ndarray  # to round a sum for a link; -1: a link carries it as it is
    tally: np.ndarray  # uint8 [access, device, element]: how often it happened
    #: uint16 [update, device, element]: whose product it was, plus 1, or _SUM and the parts that it stands for; no
    #: updates: their order is known
    arrival_order: np.ndarray
    base: np.ndarray  # int64 [device]: address of element 0
    operands: np.ndarray  # uint32 [device, element]: what the GEMM's reads must find; no devices: it reads other memory
    operand_reads: np.ndarray  # int64 [device]
    overtaking_reads: bool
    fault: np.ndarray  # int64 [device, 4]: its first: number, access, offset, cycle
    additions: np.ndarray  # int64 [1]: columns added in memory
    alu: Alu

    def before_edge(self, sim: "Sim", kernel: tuple, hardware: "Hardware | None", device: int, now: int) -> None:
        account(self, sim, hardware, device, now)

    def after_edge(self, sim: "Sim", kernel: tuple, hardware: "Hardware | None", device: int, now: int) -> None:
        pass


class ElementRange(NamedTuple):
    """Elements of a device's sums that a request is of."""

    device: int
    region: int
    first: int
    count: int


@compiled
def load_column(words: np.ndarray, first: int, source: np.ndarray, device: int, at: int, count: int,
                shift: int) -> None:
    """Put `count` elements of 2**`shift` bytes from `at` on into an ALU operand; the others are zeros."""
    per_word, width = 8 >> shift, 8 << shift
    for word in range(COLUMN_BYTES // 8):
        value = np.int64(0)
        for e in range(per_word):
            i = word * per_word + e
            element = np.int64(source[device, at + i]) if i < count else np.int64(0)
            value |= element << (width * e)
        words[first + word] = value


@compiled
def take_column(alu: Alu, into: np.ndarray, device: int, at: int, count: int, shift: int) -> None:
    """Take `count` elements of 2**`shift` bytes out of an ALU's result."""
    per_word, width = 8 >> shift, 8 << shift
    for i in range(count):
        word = alu.outputs[alu.result + i // per_word]
        into[device, at + i] = np.uint32((word >> (width * (i % per_word))) & ((1 << width) - 1))


@compiled
def drain(data: Ledger, source: np.ndarray, into: np.ndarray, part: ElementRange) -> bool:
    """Read sums for a link, which may round them; False: no result came."""
    device, end = part.device, part.first + part.count
    if data.draining_control[device, part.region] < 0:
        for i in range(part.first, end):
            into[device, i] = source[device, i]
        return True
    alu, column = data.alu, COLUMN_BYTES >> data.shift
    for first in range(part.first, end, column):
        size = min(column, end - first)
        load_column(alu.inputs, alu.old, source, device, first, size, data.shift)
        alu.inputs[alu.control] = data.draining_control[device, part.region]
        if not add(alu):
            return False
        take_column(alu, into, device, first, size, data.sent_shift)
    return True


@compiled
def add_columns(data: Ledger, into: np.ndarray, part: ElementRange, operand: np.ndarray, origin: int,
                own: bool) -> bool:
    """Do op-and-stores, column by column, through the RTL, of an `own` product or not; False: no result came."""
    alu, device, end, column = data.alu, part.device, part.first + part.count, COLUMN_BYTES >> data.shift
    for first in range(part.first, end, column):
        size = min(column, end - first)
        load_column(alu.inputs, alu.old, into, device, first, size, data.shift)
        load_column(alu.inputs, alu.new, operand, origin, first, size, data.shift if own else data.sent_shift)
        controls = data.own_control if own else data.arriving_control
        alu.inputs[alu.control] = controls[device, part.region]
        if not add(alu):
            return False
        take_column(alu, into, device, first, size, data.shift)
    return True


@compiled
def add_in_switch(data: Ledger, switch: "SwitchState", operand: np.ndarray, part: ElementRange, line: int) -> bool:
    """Add up what GPUs sent in the order in which a switch did, with the same ALU; False: no result came.

    It adds as the owner's memory does, and its link carries what others do.
    """
    for i in range(part.first, part.first + part.count):
        data.summed[part.device, i] = data.identity
    for turn in range(switch.parts):
        if not add_columns(data, data.summed, part, operand, switch.order[part.device, line, turn], False):
            return False
    return drain(data, data.summed, data.summed, part)


@compiled
def unpack(data: Ledger, columns: np.ndarray, number: int, part: ElementRange) -> None:
    """Take a sum out of a packet that the switch's RTL sent."""
    per_word, width = 8 >> data.shift, 8 << data.shift
    for i in range(part.count):
        data.summed[part.device, part.first + i] = np.uint32(
            (columns[number, i // per_word] >> (width * (i % per_word))) & ((1 << width) - 1))


@compiled
def read_operand(data: Ledger, fields: "RequestBits", device: int, lo: int, hi: int) -> int:
    """Check that what the GEMM reads is there. Returns 0 or a fault."""
    offset = bits.address_of(lo, fields) - data.base[device]
    at, count = offset >> data.shift, bits.get(lo, hi, fields.bytes, fields.op - fields.bytes) >> data.shift
    if len(data.operands) == 0 or offset < 0 or at + count > data.memory.shape[1]:
        return 0
    data.operand_reads[device] += 1
    for i in range(at, at + count):
        if data.memory[device, i] != data.operands[device, i]:
            data.fault[device, 1], data.fault[device, 2] = OPERAND, offset
            return TOO_EARLY
    return 0


@compiled
def perform(data: Ledger, sim: "Sim", columns: np.ndarray, number: int, device: int, lo: int, hi: int) -> int:
    """Do to the numbers what the request that DRAM performs now does. Returns 0 or a fault.

    `columns`: of packets with sums from the switch's RTL; no packets: there is none.
    `number`: of the request's tag: who sent it, and of which part of K it is; of one that is local that part, of a
    packet from the switch's RTL its place in `columns`.
    """
    b = sim.b
    op = bits.get(lo, hi, b.op, 2)
    source = bits.get(lo, hi, b.source, 2)
    if op == bits.READ and source == bits.LOCAL:
        return read_operand(data, b, device, lo, hi)
    access = DMA_READ if op == bits.READ else source + PLAIN if op == bits.STORE else source
    offset = bits.address_of(lo, b) - data.base[device]
    data.fault[device, 1], data.fault[device, 2] = access, offset
    parts = 1 + bits.get(lo, hi, b.more, b.more_bits)
    at = offset >> data.shift
    count = bits.get(lo, hi, b.bytes, b.op - b.bytes) >> data.shift
    if offset < 0 or at + count > data.memory.shape[1]:
        own = len(data.operands) > 0 and op == bits.STORE and source == bits.LOCAL  # of the GEMM's output
        return 0 if own else OUTSIDE
    for i in range(at, at + count):
        data.tally[access, device, i] += np.uint8(parts)
    where = ElementRange(device, bits.get(lo, hi, b.region, b.region_bits), at, count)
    if op == bits.READ:
        return 0 if data.overtaking_reads or drain(data, data.memory, data.fetched, where) else ALU_SILENT
    origin = device if source == bits.LOCAL else sender_of(number)
    part = number if source == bits.LOCAL else part_sent(number)
    summed = columns.shape[0] > 0 and source != bits.LOCAL and op != bits.STORE  # of several: it names no sender
    if source == bits.DMA and not summed and data.tally[DMA_READ, origin, at] == 0:
        return NOT_READ
    whose = origin * data.parts + part
    operand, origin = (data.fetched, origin) if source == bits.DMA else (
        data.product if source == bits.LOCAL else data.sent, whose)
    if source != bits.LOCAL and op != bits.STORE and len(data.summed):
        line = line_at(sim.switch, device, bits.address_of(lo, b))
        if summed:
            unpack(data, columns, number, where)
        elif not add_in_switch(data, sim.switch, operand, where, line):
            return ALU_SILENT
        operand, origin = data.summed, device
    if op == bits.STORE:
        if source == bits.LOCAL:
            operand = data.stored
        # What arrives is added to nothing.
        widened = source != bits.LOCAL and data.draining_control[device, where.region] >= 0
        for i in range(at, at + count):
            data.memory[device, i] = data.identity if widened else operand[origin, i]
        if not widened:
            return 0
    elif data.arrival_order.shape[0]:
        for i in range(at, at + count):
            before = (data.tally[bits.LOCAL, device, i] + data.tally[bits.REMOTE, device, i]
                      + data.tally[bits.DMA, device, i] - parts)
            if before < data.arrival_order.shape[0]:
                data.arrival_order[before, device, i] = (
                    _SUM + parts if columns.shape[0] and source != bits.LOCAL else whose + 1)
    if not add_columns(data, data.memory, where, operand, origin, source == bits.LOCAL):
        return ALU_SILENT
    data.additions[0] += 0 if op == bits.STORE else -(-count // (COLUMN_BYTES >> data.shift))
    return 0


@compiled
def overtake(data: Ledger, fields: "RequestBits", device: int, lo: int, hi: int) -> bool:
    """Note a request that enters the DRAM queue: a DMA read gets its data now. False: no result came."""
    first = (bits.address_of(lo, fields) - data.base[device]) >> data.shift
    count = bits.get(lo, hi, fields.bytes, fields.op - fields.bytes) >> data.shift
    if (bits.get(lo, hi, fields.op, 2) == bits.READ and bits.get(lo, hi, fields.source, 2) == bits.DMA
            and first >= 0 and first + count <= data.memory.shape[1]):
        region = bits.get(lo, hi, fields.region, fields.region_bits)
        return drain(data, data.memory, data.fetched, ElementRange(device, region, first, count))
    return True


@compiled
def account(data: Ledger, sim: "Sim", hardware: "Hardware", device: int, now: int) -> None:
    """Account for everything that DRAM performed for a device in this cycle: at most one request per channel."""
    ports = hardware.ports
    inputs, outputs = words_at(hardware.inputs[device]), words_at(hardware.outputs[device])
    for c in range(sim.mem.m.channels):
        row, fault = device * sim.mem.m.channels + c, 0
        if (data.overtaking_reads and inputs[ports.dram_ready[c]] and outputs[ports.dram_valid[c]]
                and not overtake(data, sim.b, device, outputs[ports.dram[c]], outputs[ports.dram[c] + 1])):
            fault = ALU_SILENT
        if sim.mem.retired[row] and fault == 0 and data.fault[device, 0] == 0:
            fault = perform(data, sim, hardware.switch.numbers.columns, number_of(sim.mem.retired_tag[row]), device,
                            sim.mem.retired_lo[row], sim.mem.retired_hi[row])
        if fault:
            data.fault[device, 0], data.fault[device, 3] = fault, now
            sim.control.halt[0] = 1


@dataclass(frozen=True)
class Variation:
    """Choices of data mode besides the `Plan`."""

    overtaking_reads: bool = False  #: see above
    scale: float = 1.0  #: multiplies A: in fp16, beyond about 1000 sums overflow to infinity


@dataclass(frozen=True)
class DataResult:
    """Result of a run. That it exists at all means that every element of every device is right."""

    devices: int
    cycles: int
    slices: int
    elements: int  #: reduced, of the whole output
    columns_added: int  #: columns through the near-memory ALU
    triggers: int  #: complete tiles, all devices
    packets: int
    blocked_cycles: int  #: in which a free compute unit waited for the dispatch window, all devices
    guard_stalls: int  #: channel cycles in which a DMA read waited for a write
    reduced: np.ndarray  #: bits[N, M], the owners' chunks put together
    error: float  #: of the sums, rounded to the layer's format, from those of float64: roots of mean squares


@dataclass(frozen=True)
class Products:
    """Each device's partial product, or what it has of the activations, and what every memory must hold in the end.

    Both are [device, N, pitch], bits of the format; what lies beyond row M is never written. With K in parts, a product
    of each, as equal as may be, one after the other.
    """

    product: np.ndarray  #: [device and part of K, N, pitch]
    memory: np.ndarray
    tally: np.ndarray  #: uint8[access, device, N, pitch]
    owner: np.ndarray  #: int64[N, pitch]: device that has the reduced element, -1 beyond row M
    exact: np.ndarray  #: float64[N, M]: the sum of all products of the same matrices; of what only moves, zeros

    @classmethod
    def of(cls, schedule: Schedule, k: int, seed: int, scale: float = 1.0, number: Format = FP16,
           wide: Workload | None = None) -> "Products":
        """Make products of random matrices; `scale` multiplies A. `wide`: whose sums are wider than its elements."""
        random, tiling, parts = np.random.default_rng(seed), schedule.tiling, schedule.policy.parts
        shape = schedule.gpus * parts, tiling.n, tiling.pitch_bytes // tiling.element_bytes
        rounds = FP32 if wide else number
        product = np.full(shape, rounds.negative_zero, rounds.bits)
        exact = np.zeros((tiling.n, tiling.m))

        def matrix(rows: int, columns: int, scale: float = 1.0) -> np.ndarray:
            values = random.standard_normal((rows, columns)) * scale
            return number.value(number.rounded(values.astype(np.float32)))
        for d in range(schedule.gpus):
            with np.errstate(over="ignore", invalid="ignore"):
                if schedule.placement is not None:
                    made = matrix(k, schedule.placement.tilings[d].n)
                    a = matrix(tiling.m, k, scale)
                    columns, of_part = schedule.placement.columns[d], schedule.placement.parts[d]
                    some = columns != NOWHERE
                    product[d * parts + of_part[some], columns[some], :tiling.m] = rounds.rounded(a @ made[:, some]).T
                    np.add.at(exact, columns[some], (a.astype(np.float64) @ made[:, some].astype(np.float64)).T)
                    continue
                if schedule.policy.present:
                    product[d, :, :tiling.m] = number.rounded(matrix(tiling.m, tiling.n, scale)).T
                    continue
                a, b = matrix(tiling.m, k, scale), matrix(k, tiling.n)
                exact += (a.astype(np.float64) @ b.astype(np.float64)).T
                for part in range(parts):
                    own = slice(k * part // parts, k * (part + 1) // parts)
                    product[d * parts + part, :, :tiling.m] = rounds.rounded(a[:, own] @ b[own]).T
        sums = wide_sums(wide) if wide else number
        return cls(product, *reduction(schedule, product, sums), exact)


def wide_sums(workload: Workload) -> WideSums:
    """Return the formats of a workload's sums."""
    wire, sums = {**FORMATS, None: workload.format}[workload.wire], region_sum(workload)
    return WideSums(wire, sums.scale if workload.sums == "fixed" else None)


def reduction(schedule: Schedule, product: np.ndarray, number: Format | WideSums = FP16,
              arrivals: np.ndarray | None = None,
              added: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Follow the schedule in numpy: (memory, tally, owner) as in `Products`.

    A device adds its own product to what arrives, in its format, keeps the sum, or the copy, and, if its role has a
    route, sends it on. A sum of two does not depend on their order. One of more is added in the order in which
    `arrivals` says that its parts came, uint16[update, device, N, pitch], a product's row plus 1 each (of what DMA
    sends the sender's first); without, or where it names others than the schedule does, the device's own come first
    and the others in the schedule's order. What a switch adds is a sum of its own, of which `arrivals` is the order,
    and is then added to the device's. Its RTL may send several sums of some parts each: `added` then says in which
    order memory added what, as `Ledger.arrival_order`.
    """
    if schedule.placement is not None:
        return _placed_reduction(schedule, schedule.placement, product, number, arrivals)
    tiling, split = schedule.tiling, schedule.policy.parts
    memory = np.full_like(product[:schedule.gpus], number.negative_zero)
    tally = np.zeros((len(ACCESSES), *memory.shape), np.uint8)
    owner = np.full(product.shape[1:], -1)
    shares = sorted(((device, share) for device in range(schedule.gpus) for share in schedule.shares(device)),
                    key=lambda one: one[1].role.level)
    sent: dict[tuple[int, int, int], list[np.ndarray]] = {}  # what a device's role sends of a tile, store by store
    for d, share in shares:
        role = share.role
        for tile in share.tiles:
            m0, n0 = tiling.first_row[tile], tiling.first_column[tile]
            part = slice(n0, n0 + tiling.columns[tile]), slice(m0, m0 + tiling.rows[tile])
            own = range(d * split, (d + 1) * split) if role.contributes else ()
            parts = {row: number.term(product[(row, *part)]) for row in own}
            stores = [number.arrived(number.sent_product(product[(row, *part)])) for row in own]
            parts |= {source.gpu * split + turn: one for source in role.fed_by
                      for turn, one in enumerate(sent[source.gpu, source.role, tile])}
            switched = schedule.program.in_switch and len(role.fed_by) > 1
            order = None if arrivals is None or not (switched or role.tracked) else arrivals[
                (slice(len(parts) - 1 if switched else role.updates), d, *part)]
            if switched and added is not None:
                total = _by_packets(d, parts, order, added[(slice(role.updates), d, *part)], number)
            elif switched:
                others = _sum({device: one for device, one in parts.items() if device != d}, order, number)
                total = _sum({d: parts[d], -1: number.arrived(number.sent_sum(others))}, None, number)
            else:
                total = _sum(parts, order, number)
            for source in role.fed_by:
                stored = Action.SEND_STORES in schedule.roles[source.gpu][source.role].actions
                tally[((bits.REMOTE if stored else bits.DMA) + PLAIN * role.copied, d, *part)] += split if stored else 1
            sent[d, share.number, tile] = stores if Action.SEND_STORES in role.actions else [
                number.arrived(number.sent_sum(total))]
            if role.fed_by or Action.STORE in role.actions:
                memory[(d, *part)] = total
            if Action.STORE in role.actions and schedule.policy.present:  # again, the first line of each wavefront tile
                line = LINE_BYTES // tiling.element_bytes * role.tracked  # what stays is not stored
                tally[bits.LOCAL + PLAIN, d, part[0], part[1]][::tiling.wf_columns, :line] += 1
            elif Action.STORE in role.actions:
                tally[(bits.LOCAL if role.tracked else bits.LOCAL + PLAIN, d, *part)] += split
            tally[(DMA_READ, d, *part)] += Action.SEND_DMA in role.actions
            if Action.EVENT in role.actions:
                owner[part] = d
    return memory, tally, owner


def _placed_reduction(schedule: Schedule, placement: Placement, product: np.ndarray, number: Format | WideSums,
                      arrivals: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Add up each column's parts at its owner: those of the experts that are there, and what came; as `reduction`."""
    tiling, split = schedule.tiling, schedule.policy.parts
    memory = np.full_like(product[:schedule.gpus], number.negative_zero)
    tally = np.zeros((len(ACCESSES), *memory.shape), np.uint8)
    owner = np.full(product.shape[1:], -1)
    maker = np.zeros((split, tiling.n), np.int64)
    for device, (columns, parts) in enumerate(zip(placement.columns, placement.parts)):
        maker[parts[columns != NOWHERE], columns[columns != NOWHERE]] = device
    plain = PLAIN * (split == 1)
    for d, share in ((device, share) for device in range(schedule.gpus) for share in schedule.shares(device)):
        if not share.role.tracked:
            continue
        for tile in share.tiles:
            m0, n0 = tiling.first_row[tile], tiling.first_column[tile]
            part = slice(n0, n0 + tiling.columns[tile]), slice(m0, m0 + tiling.rows[tile])
            made = maker[:, part[0]]
            whose = made * split + np.arange(split)[:, None]
            values = product[whose, np.arange(tiling.n)[part[0]], part[1]]
            own = (made == d)[:, :, None]
            values = np.where(own, number.term(values), number.arrived(number.sent_product(values)))
            turns = np.broadcast_to(np.arange(split)[:, None, None], values.shape)
            if split > 2 and arrivals is not None:
                order = arrivals[(slice(split), d, *part)].astype(np.int64) - 1
                known = (np.sort(order, axis=0) == np.sort(whose, axis=0)[:, :, None]).all(axis=0)
                turns = np.where(known, order % split, turns)
            memory[(d, *part)] = sum_in_turn(values, turns, number)
            tally[(bits.LOCAL + plain, d, *part)] += own.sum(axis=0).astype(np.uint8)
            tally[(bits.REMOTE + plain, d, *part)] += (~own).sum(axis=0).astype(np.uint8)
            owner[part] = d
    return memory, tally, owner


def _by_packets(device: int, parts: Mapping[int, np.ndarray], arrivals: np.ndarray, added: np.ndarray,
                number: Format) -> np.ndarray:
    """Add up parts as the switch put others' into packets and the device's memory added those, element by element.

    `arrivals`: in which order the switch took them; `added`: as `Ledger.arrival_order`.
    """
    shape, flat = parts[device].shape, {whose: one.ravel() for whose, one in parts.items()}
    rows = np.vstack([arrivals.reshape(len(arrivals), -1), added.reshape(len(added), -1)]).T
    kinds, kind = np.unique(rows, axis=0, return_inverse=True)
    total = np.zeros_like(flat[device])
    for index, row in enumerate(kinds.tolist()):
        at, terms = kind.ravel() == index, []
        taken = [flat[whose - 1][at] for whose in row[:len(arrivals)] if whose - 1 in flat]
        for what in row[len(arrivals):]:
            if what > _SUM:
                packet, taken = taken[:what - _SUM], taken[what - _SUM:]
                terms += [reduce(lambda before, one: number.add(one, before), packet)] if packet else []
            elif what:
                terms.append(flat[device][at])
        total[at] = reduce(lambda before, one: number.add(one, before), terms)
    return total.reshape(shape)


def _sum(parts: Mapping[int, np.ndarray], arrivals: np.ndarray | None, number: Format | WideSums) -> np.ndarray:
    """Add up parts by device, element by element in the order in which they came, if each of them did."""
    devices = np.array(sorted(parts))
    values, order = np.stack([parts[device] for device in devices]), list(parts)
    turns = np.broadcast_to(np.array(order).reshape(-1, 1, 1), values.shape)
    if len(parts) > 2 and arrivals is not None:
        known = (np.sort(arrivals, axis=0) == devices.reshape(-1, 1, 1) + 1).all(axis=0)
        turns = np.where(known, arrivals.astype(np.int64) - 1, turns)
    return sum_in_turn(values, np.searchsorted(devices, turns), number)


def _alu_for(run: FusedRun, number: Format | WideSums) -> tuple[Simulator, dict]:
    """Make the ALU that a run's sums need; and how it is asked, as in `Ledger`, by what each GPU's regions say."""
    workload, shape = run.workload, (len(run.backends), run.geometry.dma.regions)
    if not sums_in_memory(workload):
        alu = compiled_alu()
        form = DTYPES.get(workload.sums or workload.dtype, 0)  # elements of 8 bits only move
        adds = np.full(shape, control(alu, dtype=form, op=OPERATIONS["add"]))
        return alu, {"own_control": adds, "arriving_control": adds, "draining_control": np.full(shape, -1),
                     "sent_shift": number.bytes.bit_length() - 1}
    alu = compiled_wide_alu(sums_in_memory(workload))
    own, arriving, draining = (np.zeros(shape, np.int64) for _ in range(3))
    for device, region in np.ndindex(shape):
        outputs, port = run.backends[device].outputs, run.backends[device].ports.outputs[f"sums[{region}]"]
        fields = {name: int(outputs[port.offset]) >> field.lsb & (1 << field.width) - 1
                 for name, field in port.fields.items()}
        own[device, region] = control(alu, op=WIDE_OPERATIONS["add"], **fields | {"sum": NUMBERS[own_sum(workload)]})
        arriving[device, region] = control(alu, op=WIDE_OPERATIONS["add"], **fields)
        draining[device, region] = control(alu, op=WIDE_OPERATIONS["drain"], **fields)
    return alu, {"own_control": own, "arriving_control": arriving, "draining_control": draining,
                 "sent_shift": number.wire.bytes.bit_length() - 1}


class DataLedger(Observer):
    """Real numbers of a run in which every GPU is simulated. `products` may be replaced before the run."""

    def __init__(self, run: FusedRun, seed: int, variation: Variation = Variation()) -> None:
        self._run = run
        workload = run.workload
        wide = workload if workload.sums else None
        self.products = Products.of(run.schedule, workload.k, seed, variation.scale, workload.format, wide)
        self._format = number = wide_sums(wide) if wide else workload.format
        updates = max(role.updates for roles in run.schedule.roles for role in roles)
        self._switched = run.sim.switch.parts > 0
        devices, parts = run.schedule.gpus, run.schedule.policy.parts
        product = self.products.product.reshape(devices * parts, -1).astype(np.uint32)
        empty = np.zeros_like(product[:devices])
        gathers, operands = run.schedule.policy.present, product[:0]
        if gathers:
            operands = self.products.memory.reshape(product.shape).astype(np.uint32)
        self._alu, controls = _alu_for(run, number)
        self.data = Ledger(
            product=product, sent=number.sent_product(product).astype(np.uint32),
            stored=number.term(product).astype(np.uint32), **controls, parts=parts,
            memory=self._at_first(product, gathers), operands=operands,
            operand_reads=np.zeros(devices, np.int64), fetched=empty.copy(), identity=number.negative_zero,
            summed=empty.copy() if self._switched else empty[:0],
            shift=number.bytes.bit_length() - 1, tally=np.zeros((len(ACCESSES), *empty.shape), np.uint8),
            arrival_order=np.zeros((updates if updates > 2 else 0, *empty.shape), np.uint16),
            base=np.array([space.base for space in run.spaces]), overtaking_reads=variation.overtaking_reads,
            fault=np.zeros((devices, 4), np.int64), additions=np.zeros(1, np.int64), alu=alu_of(self._alu))
        if run.switch:
            self._give_switch(run.switch)

    def _give_switch(self, switch: SwitchRtl) -> None:
        """Let the switch's RTL add these numbers."""
        data = self.data
        numbers = SwitchNumbers(data.sent, data.fetched, data.parts, data.shift, switch.columns(self._run.sim),
                                DTYPES[self._run.workload.dtype], self._run.sim.switch.base)
        self._run.sim = switch.with_numbers(self._run.sim, numbers)

    def _at_first(self, product: np.ndarray, gathers: bool) -> np.ndarray:
        """Memory before the run: what each device has of its own, if anything."""
        memory = np.full_like(product[:self._run.schedule.gpus], self._format.negative_zero)
        if gathers:
            tiling, shape = self._run.tiling, self.products.product.shape
            for d in range(len(product)):
                rows = self._run.schedule.rows(d)
                for tile in rows.tile[rows.contributes]:
                    n0 = tiling.first_column[tile]
                    own = slice(n0, n0 + tiling.columns[tile])
                    memory.reshape(shape)[d, own] = product.reshape(shape)[d, own]
        return memory

    def before(self, now: int, end: int) -> tuple[Ledger, int]:
        return self.data, end

    def after(self, now: int) -> None:
        """Check what happened until now. Raises SimulationError at the first access that cannot be."""
        faults = [(int(cycle), device, number, access, offset)
                  for device, (number, access, offset, cycle) in enumerate(self.data.fault) if number]
        if faults:
            cycle, device, number, access, offset = min(faults)
            raise SimulationError(f"GPU {device}: {_NAMES[access]} {FAULTS[number]}, at {self._place(offset)}, "
                                  f"cycle {cycle}")

    def check(self) -> None:
        """Compare every element of every device. Raises SimulationError."""
        shape = self.products.memory.shape
        reads = self.data.operand_reads
        if len(self.data.operands) and (idle := np.flatnonzero((reads == 0) & self._reading())).size:
            raise SimulationError(f"GPU {idle[0]} has read no operand: each GPU's reads are {reads.tolist()}")
        wrong = np.argwhere(self.data.tally.reshape(len(ACCESSES), *shape) != self.products.tally)
        for access, d, n, m in wrong[:1]:
            got, wanted = (array.reshape(len(ACCESSES), *shape)[access, d, n, m]
                           for array in (self.data.tally, self.products.tally))
            raise SimulationError(f"GPU {d}: row {m}, column {n} saw {got} times {ACCESSES[access]} instead of "
                                  f"{wanted} ({len(wrong)} such elements)")
        memory, expected = self.data.memory.reshape(shape), self.products.memory
        if len(self.data.arrival_order) or self._switched:
            in_memory = self.data.arrival_order.reshape(-1, *shape)
            arrivals = self._switch_order().reshape(-1, *shape) if self._switched else in_memory
            expected = reduction(self._run.schedule, self.products.product, self._format, arrivals,
                                 in_memory if self._run.switch and len(in_memory) else None)[0]
        wrong = np.argwhere(memory != expected)
        for d, n, m in wrong[:1]:
            got, wanted = memory[d, n, m], expected[d, n, m]
            raise SimulationError(f"GPU {d}: row {m}, column {n} is {self._number(got)}, numpy's reduction in the "
                                  f"schedule's order gives {self._number(wanted)} ({len(wrong)} such elements)")

    def _reading(self) -> np.ndarray:
        """Return which devices have workgroups that wait for their inputs: bool[device]."""
        run = self._run
        return np.array([len(build.consumers_of(run.machine, run.workload, space.device).outputs.columns) > 0
                         for space in run.spaces])

    def _switch_order(self) -> np.ndarray:
        """Return in which order the switch added, as `Ledger.arrival_order`."""
        switch, elements = self._run.sim.switch, self.data.memory.shape[1]
        line = np.arange(elements) * self._format.bytes // LINE_BYTES
        parts = np.arange(switch.parts).reshape(-1, 1, 1)
        whose = np.moveaxis(switch.order[:, line], 2, 0).astype(np.int64)
        return np.where(parts < switch.parts_taken[:, line], whose + 1, 0).astype(np.uint16)

    def result(self) -> DataResult:
        """Return the result after the run."""
        run = self._run
        owner = self.products.owner[:, :run.tiling.m]
        memory = self.data.memory.reshape(self.products.memory.shape)[:, :, :run.tiling.m]
        counters = [run.counters(d) for d in range(run.schedule.gpus)]

        def total(name: str) -> int:
            return sum(one[name] for one in counters)
        return DataResult(
            run.schedule.gpus, run.now, run.schedule.policy.slices, owner.size, int(self.data.additions[0]),
            total("triggers"), total("packets"), int(run.sim.control.blocked_cycles.sum()), total("guard_stall"),
            reduced := np.take_along_axis(memory, owner[None], axis=0)[0].astype(self._format.bits),
            self._error(reduced))

    def _error(self, reduced: np.ndarray) -> float:
        """Return how far sums, rounded to the layer's format, are from float64, whose sums are of unrounded products.

        Of what only moves it is 0.
        """
        kept, exact = self._run.workload.format, self.products.exact
        if not exact.any():
            return 0.0
        with np.errstate(all="ignore"):
            sums = kept.value(kept.cut(self._format.value(reduced))).astype(np.float64)
            return float(np.sqrt(np.mean((sums - exact) ** 2) / np.mean(exact**2)))

    def close(self) -> None:
        self._alu.close()

    def _place(self, offset: int) -> str:
        return (f"row {offset // self._run.tiling.pitch_bytes}, column "
                f"{offset % self._run.tiling.pitch_bytes // self._run.tiling.element_bytes}")

    def _number(self, bits: int) -> str:
        number = self._format
        return f"0x{bits:0{2 * number.bytes}x} ({number.value(np.array([bits], number.bits))[0]})"


def data_run(plan: Plan, policy: Policy = Policy(), variation: Variation = Variation(), *,
             simulator: str = "compiled", design: Design | None = None) -> tuple[FusedRun, DataLedger]:
    """Make `plan.workload.tp` GPUs, each with its own RTL, and the ledger that observes them.

    `simulator`: "compiled", or "amaranth" for Amaranth's own; `design`: another compiled top. Everything random comes
    from `plan.seed`.
    """
    geometry, gpus = plan.machine.geometry(), plan.workload.tp
    if simulator == "compiled":
        design = design or gpu_design(geometry)
        backends = [design.simulator() for _ in range(gpus)]
    else:
        backends = [amaranth_gpu(geometry) for _ in range(gpus)]
    run = FusedRun(plan, backends, model_ports(backends[0].ports, geometry), policy, mirrored=False)
    ledger = DataLedger(run, plan.seed, variation)
    run.observers.append(ledger)
    return run, ledger


def run_data_mode(plan: Plan, policy: Policy = Policy(), variation: Variation = Variation(), *,
                  simulator: str = "compiled", progress: Callable[[float], None] = lambda fraction: None) -> DataResult:
    """Run and check `plan.workload.tp` GPUs; the arguments are those of `data_run`.

    Raises SimulationError, which names what is wrong first and where.
    """
    run, ledger = data_run(plan, policy, variation, simulator=simulator)
    try:
        run.run(progress)
        return ledger.result()
    finally:
        run.close()
