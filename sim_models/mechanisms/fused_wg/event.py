"""Persistent kernels that compute and send: embedding and all-to-all, GEMV and all-reduce, GEMM and all-to-all.

A kernel of as many workgroups as fit loops over tasks: rows to be pooled, tiles of an output. Tasks for another GPU
come first or not; a number of tasks make a slice, whose last workgroup sends it: by its own stores to a GPU of the same
node, without a copy here, or by a put and a flag over a network card. The kernel ends when all slices of others have
come. Registers of the library that sends cost occupancy. Beside it: the kernels of the framework and the library one
after the other, and the same kernel without any code that sends, whose slices Track & Trigger would send.
Source: Optimizing Distributed ML Communication with Fused Computation-Collective Operations, section III.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from t3sim.analytic.gemm import Shape, tile_kernel
from t3sim.analytic.rings import library_exchange_ns, library_ring_ns
from t3sim.base.errors import BadInput, choices
from t3sim.event.tiles.ports import store_bytes_per_ns
from t3sim.event.tiles.slots import run_slices
from t3sim.machine import Machine
from t3sim.runs.signals import SIGNALS

OPERATORS = ("embedding-a2a", "gemv-ar", "gemm-a2a")
TECHNIQUES = ("sequential", "fused-wg", "t3-model")
#: Bytes of an embedding's or an output's element.
_SINGLE, _HALF = 4, 2


@dataclass(frozen=True)
class Tasks:
    """Tasks that each GPU computes for each of the GPUs, itself included."""

    for_each: int  #: tasks
    task_ns: float  #: of one on a place by itself
    read_bytes: float  #: of one, from memory
    out_bytes: float  #: of one
    plain_places: int  #: workgroups that are resident at once in a kernel that sends nothing
    sending_places: int  #: and in one that sends
    reduced: bool = False  #: what comes is added, and sums go back to all (all-reduce)


@dataclass(frozen=True)
class Sending:
    """Way in which a persistent kernel sends."""

    slice_tasks: int = 32  #: that are signalled together
    remote_first: bool = True
    tracked: bool = False  #: by Track & Trigger: no code in the kernel, no registers, no flag set by a workgroup

    @classmethod
    def by(cls, signal: str, tasks: Tasks) -> "Sending":
        """Return what sends the tasks that a signal is of: a workgroup's one, those that run at once, all of a GPU's.

        The wavefronts of a workgroup end together here. Raises BadInput.
        """
        if signal not in SIGNALS:
            raise BadInput(f"exchange.signal = {signal!r} is unknown: allowed are {choices(signal, SIGNALS)}")
        many = {"wave-group": min(tasks.sending_places, tasks.for_each), "shard": tasks.for_each}
        return cls(many.get(signal, 1))


@dataclass(frozen=True)
class PersistentKernelTimes:
    """ns from the kernel's start; of two ranks that differ the later one."""

    ns: float
    computed_ns: float  #: until the last task is computed
    skew: float  #: difference between first and last rank, of their mean


def places(node: Machine, sending: bool, share: float | None = None) -> int:
    """Return how many workgroups are resident at once. Raises BadInput for a machine without [occupancy].

    `share`: of the most that there can be, instead of what registers allow.
    """
    has = node.occupancy
    if has is None:
        raise BadInput(f"machine {node.name} has no [occupancy]: persistent kernels need it")
    wavefronts = has.held(has.plain_registers + (has.sending_registers if sending else 0))
    if share is not None:
        wavefronts = round(share * has.wavefronts_per_cu)
    return max(1, wavefronts // has.wavefronts_per_workgroup) * node.gpu.compute_units


def embedding(node: Machine, gpus: int, batch: int, tables: int, dimension: int = 256, pooled: int = 10) -> Tasks:
    """Return the pooling of `tables` tables per GPU for a batch of all GPUs: a task is one sample of one table."""
    resident = places(node, True)
    has, row = node.occupancy, dimension * _SINGLE
    return Tasks(batch * tables // gpus, pooled * has.load_ns / has.loads_at_once, pooled * (row + 8.0), row,
                 places(node, False), resident)


def gemv(node: Machine, gpus: int, m: int, k: int, rows: int = 16) -> Tasks:
    """Return a product of an m x k matrix per GPU and a vector: a task is `rows` elements of the output."""
    if m % (gpus * rows):
        raise BadInput(f"M = {m} of a GEMV is not a multiple of {gpus * rows}: {rows} for a workgroup on each GPU")
    per_place = places(node, True)
    return Tasks(m // rows // gpus, node.occupancy.load_ns, rows * k * _HALF, rows * _HALF, places(node, False),
                 per_place, reduced=True)


def gemm_tasks(node: Machine, gpus: int, shape: Shape, tile: tuple[int, int] = (128, 128)) -> Tasks:
    """Return an expert's GEMM whose output rows belong to all GPUs in equal parts: a task is a tile."""
    one = tile_kernel(node, shape, tile)
    return Tasks(max(1, one.tiles // gpus), one.tile_ns, 0.0, tile[0] * tile[1] * _HALF, node.gpu.compute_units,
                 node.gpu.compute_units)


def task_ns(node: Machine, tasks: Tasks, resident: int) -> float:
    """Return a task's time if this many run at once: its own time, or its share of the memory."""
    return max(tasks.task_ns, resident * (tasks.read_bytes + tasks.out_bytes) / node.memory.moved_bytes_per_ns)


def kernels_ns(node: Machine, gpus: int, tasks: Tasks, launches: int = 1) -> tuple[float, float]:
    """Return (kernels, collective) of a framework and a library, one after the other.

    `launches`: kernels that the tasks are divided among, each with its own last round.
    """
    full, rest = divmod(tasks.for_each * gpus // launches, tasks.plain_places)
    rounds_ns = full * task_ns(node, tasks, tasks.plain_places) + (task_ns(node, tasks, rest) if rest else 0.0)
    alone = launches * (rounds_ns + node.host.launch_ns)
    part = tasks.for_each * tasks.out_bytes
    if tasks.reduced:
        return alone, library_ring_ns(node, gpus, gpus * part, passes=2)
    if gpus > node.gpus:
        raise BadInput("kernels of a library are within a node")
    return alone, library_exchange_ns(node, gpus, part)


def over_cards_ns(node: Machine, tasks: Tasks) -> float:
    """Return the library's all-to-all between two nodes of one GPU each."""
    network, library = node.network, node.library
    return library.base_ns + network.latency_ns + tasks.for_each * tasks.out_bytes / (
        network.bandwidth_gb_per_s * network.efficiency)


@cache
def fused_run(node: Machine, gpus: int, tasks: Tasks, sending: Sending = Sending(),
              cards: bool = False) -> PersistentKernelTimes:
    """Play a persistent kernel on every rank; `cards`: two nodes of one GPU each."""
    if not 1 <= sending.slice_tasks:
        raise BadInput(f"fused_wg.slice_tasks = {sending.slice_tasks} is not possible: a task or more")
    resident = tasks.plain_places if sending.tracked else tasks.sending_places
    signals = node.signals
    count = min(sending.slice_tasks, tasks.for_each)
    sizes = [min(count, tasks.for_each - first) for first in range(0, tasks.for_each, count)]
    mask_ns = 0.0 if sending.tracked else signals.mask_ns
    ranks = []
    for rank in range(1 if sending.remote_first else gpus):  # all alike if each begins with the next one's
        others = [(rank + distance) % gpus for distance in range(1, gpus)]
        order = [(to, size) for size in sizes for to in others] + [(rank, size) for size in sizes]
        if not sending.remote_first:
            order = [(to, size) for to in range(gpus) for size in sizes]
        ways = _Ways(node, tasks.out_bytes, sending.tracked, cards)

        def finish(number: int, computed: float, order=order, rank=rank, ways=ways) -> float:
            to, size = order[number]
            return computed if to == rank else ways.send(to, size, computed)

        computed = run_slices(resident, lambda running: task_ns(node, tasks, running) + mask_ns,
                              [size for _, size in order], finish)
        ranks.append((computed, ways.arrived))
    poll = 0.0 if sending.tracked else signals.poll_ns
    if sending.remote_first:
        ((computed, arrived),) = ranks
        ends = [max(computed, max(arrived.values()) + poll)] * gpus
    else:
        ends = [max(computed, *(arrived.get(rank, 0.0) + poll for _, arrived in ranks))
                for rank, (computed, _) in enumerate(ranks)]
    if tasks.reduced:  # sums go back to all, and are seen there
        back = tasks.for_each * tasks.out_bytes
        added = back * (gpus + 1) / node.memory.moved_bytes_per_ns
        after = added + back / store_bytes_per_ns(node) + node.link.latency_ns
        ends = [end + after + poll for end in ends]
    mean = sum(ends) / len(ends)
    return PersistentKernelTimes(max(ends), max(computed for computed, _ in ranks), (max(ends) - min(ends)) / mean)


class _Ways:
    """Links of their own to each other GPU, or a network card."""

    def __init__(self, node: Machine, task_bytes: float, tracked: bool, cards: bool) -> None:
        self.node, self.task_bytes, self.tracked, self.cards = node, task_bytes, tracked, cards
        self._free: dict[int, float] = {}
        self.arrived: dict[int, float] = {}  #: when the last slice is at each rank

    def send(self, to: int, tasks: int, computed: float) -> float:
        """Send a slice of this many tasks; return when the workgroup goes on.

        That is when its stores have left, or its put is issued; an engine sends by itself.
        """
        link, network, signals = self.node.link, self.node.network, self.node.signals
        efficiency = link.push_efficiency if self.tracked else link.store_efficiency
        rate, latency = link.bandwidth_gb_per_s * efficiency, link.latency_ns
        begins, goes_on = computed + (signals.trigger_ns if self.tracked else 0.0), computed
        if self.cards:
            rate, latency = network.bandwidth_gb_per_s * network.efficiency, network.latency_ns
            if not self.tracked:
                begins = goes_on = computed + signals.put_ns
        left_ns = max(self._free.get(to, 0.0), begins) + tasks * self.task_bytes / rate
        self._free[to], self.arrived[to] = left_ns, left_ns + latency
        return goes_on if self.cards or self.tracked else left_ns


def reduction(sequential_ns: float, fused_ns: float) -> float:
    """Return how much shorter, as a share, as the paper gives it."""
    return 1 - fused_ns / sequential_ns


def with_share(tasks: Tasks, node: Machine, share: float) -> Tasks:
    """Return the same tasks in a kernel that is resident with a share of the most workgroups."""
    return replace(tasks, sending_places=places(node, True, share))


def alone_ns(node: Machine, gpus: int, tasks: Tasks) -> float:
    """Return what one kernel of all tasks takes that sends nothing, ns from its start."""
    return run_slices(tasks.plain_places, lambda running: task_ns(node, tasks, running), [tasks.for_each * gpus],
                      lambda _, computed: computed)


def fused_losses(node: Machine, gpus: int, tasks: Tasks, sending: Sending) -> dict[str, float]:
    """Return what the fused kernel takes longer than one that sends nothing, ns by cause; they add up to all of it.

    Flags that are polled, masks, and registers that cost occupancy are taken away in this order; what is left beside
    the tasks are transfers that nothing hides, and stores that workgroups wait for. Stores that Track & Trigger tracks
    have those only.
    """
    costs_ns, before = {}, fused_run(node, gpus, tasks, sending).ns
    if not sending.tracked:
        no_flags, no_masks = (
            node.model_copy(update={"signals": node.signals.model_copy(update=dict.fromkeys(keys, 0.0))})
            for keys in (("poll_ns",), ("poll_ns", "mask_ns")))
        plain = replace(tasks, sending_places=tasks.plain_places)
        for cause, without, made in (("flags", no_flags, tasks), ("masks", no_masks, tasks),
                                     ("registers", no_masks, plain)):
            without_ns = fused_run(without, gpus, made, sending).ns
            costs_ns[cause], before = before - without_ns, without_ns
    return costs_ns | {"transfers": before - alone_ns(node, gpus, tasks)}


@dataclass(frozen=True)
class PersistentTimes:
    """One technique's time."""

    total_ns: float
    shorter: float  #: than sequential, as a share
    loss_ns: dict[str, float]  #: what it takes longer than one kernel of all tasks that sends nothing, by cause
    computed_ns: float | None = None  #: until the last task is computed


@dataclass(frozen=True)
class PersistentRun:
    """An operator of tasks on a node."""

    operator: str
    machine: str
    gpus: int
    shape: str
    slice_tasks: int
    kernels_ns: float
    collective_ns: float
    techniques: dict[str, PersistentTimes]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_persistent(node: Machine, operator: str, gpus: int, shape: tuple[int, ...],
                   techniques: Sequence[str] = TECHNIQUES, sending: Sending | str = Sending()) -> PersistentRun:
    """Play an operator on the GPUs of one node; `sending`: how, or how fine a signal. Raises BadInput.

    It is `embedding-a2a` (shape: batch of all GPUs, tables per GPU), `gemv-ar` (m, k) or `gemm-a2a` (m, n, k: one
    GPU's).
    """
    for name in techniques:
        if name not in TECHNIQUES:
            raise BadInput(f"techniques = {name!r} is unknown for persistent kernels: allowed are "
                           f"{choices(name, TECHNIQUES)}")
    if not 2 <= gpus <= node.gpus:
        raise BadInput(f"layer.devices = {gpus}: persistent kernels run on 2 to {node.gpus} GPUs of machine "
                       f"{node.name}")
    launches = 1
    if operator == "embedding-a2a":
        tasks, launches = embedding(node, gpus, *shape), shape[1]
    elif operator == "gemv-ar":
        tasks = gemv(node, gpus, *shape)
    else:
        places(node, True)
        tasks = gemm_tasks(node, gpus, Shape(*shape))
    if not tasks.for_each:
        raise BadInput(f"{operator}: {' x '.join(map(str, shape))} leaves no task for each of {gpus} GPUs")
    if isinstance(sending, str):
        sending = Sending.by(sending, tasks)
    alone, collective = kernels_ns(node, gpus, tasks, launches)
    runs = {}
    for name in techniques:
        if name == "sequential":
            runs[name] = PersistentTimes(alone + collective, 0.0, {
                "kernels of a framework": alone - alone_ns(node, gpus, tasks), "collective": collective})
            continue
        how = replace(sending, tracked=name == "t3-model")
        one = fused_run(node, gpus, tasks, how)
        runs[name] = PersistentTimes(one.ns, reduction(alone + collective, one.ns),
                                     fused_losses(node, gpus, tasks, how), one.computed_ns)
    return PersistentRun(operator, node.name, gpus, " x ".join(map(str, shape)), sending.slice_tasks, alone, collective,
                         runs)
