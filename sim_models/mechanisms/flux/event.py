"""Flux on the event level: one kernel whose epilogue stores at the owners, or whose tiles wait for their rows.

Sources: Flux (arXiv 2406.06858), algorithms 1 to 3, sections 3.1, 3.2, 4.1 to 4.3. All GPUs are alike, so one is
played; where its order of tiles is everybody's (`order = "same"`), all want one port at the same time and share it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil

from t3sim.analytic.gemm import OPERAND_BYTES, GemmKernel, Shape, tile_kernels
from t3sim.base.errors import BadInput, choices
from t3sim.event.tiles.ports import Egress, store_bytes_per_ns
from t3sim.event.tiles.slots import run_tiles
from t3sim.machine import Machine
from t3sim.runs.signals import SIGNALS

OPERATORS = ("gemm-rs", "ag-gemm")  #: that one kernel does
ORDERS = ("shifted", "same")
TRANSFERS = ("push", "pull")
#: Kernels of the library that tuning looks at: those that take at most so many times as long as the fastest one.
_WORTH_A_LOOK = 1.25


@dataclass(frozen=True)
class Choice:
    """Free choices of a fused kernel, besides its GEMM kernel."""

    order: str = "shifted"  #: of tiles: from the next rank's on, or the same on all GPUs
    transfer: str = "push"  #: all-gather: each GPU writes its rows to the others, or reads theirs
    pieces: int = 1  #: all-gather: communication tiles that a rank's rows are cut into
    signal: str | None = None  #: what is sent, or waited for, as a whole; None: a workgroup's tile, or by `pieces`

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise BadInput(f"flux.order = {self.order!r} is unknown: allowed are {choices(self.order, ORDERS)}")
        if self.transfer not in TRANSFERS:
            raise BadInput(f"flux.transfer = {self.transfer!r} is unknown: allowed are "
                           f"{choices(self.transfer, TRANSFERS)}")
        if self.signal not in (None, *SIGNALS):
            raise BadInput(f"exchange.signal = {self.signal!r} is unknown: allowed are {choices(self.signal, SIGNALS)}")
        if not 1 <= self.pieces <= 1024:
            raise BadInput(f"flux.pieces = {self.pieces} is not possible: 1 to 1024")


@dataclass(frozen=True)
class Fused:
    """A fused kernel's run, ns from its start."""

    ns: float
    kernel: GemmKernel
    choice: Choice
    reduction_ns: float = 0.0  #: of the received parts, in a kernel of its own
    launch_ns: float = 0.0  #: until all GPUs are known to have stored, and of that kernel


def edges(rows: int, ranks: int) -> list[int]:
    """Return the first row of each rank, and one past the last."""
    return [rows * rank // ranks for rank in range(ranks + 1)]


def gemm_reduce_scatter(node: Machine, ranks: int, kernel: GemmKernel, choice: Choice) -> Fused:
    """Play a GEMM whose tiles are stored at the ranks that own their rows; what came is added by a second kernel.

    A unit that stores waits until its port has taken the tile. On Hopper, units fetch their GPU's parts of tiles from
    the others instead (`pull_bytes_per_ns`), next to their products. With signals of a wave group or a shard it stores
    here, and when all tiles of it are computed, a copy engine gets a signal and sends them. The wavefronts of a
    workgroup end together here, so that signals of theirs are the workgroup's.
    """
    shape = kernel.shape
    firsts, shift = edges(shape.m, ranks), choice.order == "shifted"
    owned = [_owners(row * kernel.tile[0], min(shape.m, (row + 1) * kernel.tile[0]), firsts)
             for row in range(kernel.rows)]
    rows = sorted(range(kernel.rows), key=lambda row: (owned[row][0][0] - 1) % ranks) if shift else range(kernel.rows)
    at_a_time = max(1.0, kernel.units * ranks / kernel.tiles)  # owners at whom tiles that run side by side are stored
    crowd = 1.0 if shift else max(1.0, (ranks - 1) / at_a_time)
    order = [row for row in rows for _ in range(kernel.columns)]
    parts = [[(owner, OPERAND_BYTES * count * min(kernel.tile[1], shape.n - tile % kernel.columns * kernel.tile[1]))
              for owner, count in owned[row] if owner] for tile, row in enumerate(order)]
    idle = [0.0] * kernel.units
    if choice.signal in ("wave-group", "shard"):
        computed = [0.0] * len(order)

        def stay(tile: int, now: float) -> float:
            computed[tile] = now
            return now

        end = run_tiles(idle, kernel.tile_ns, [0.0] * len(order), stay)
        egress = Egress(node, 0, crowd, node.link.push_efficiency)
        _send_groups(egress, parts, computed, kernel.units if choice.signal == "wave-group" else len(order))
    else:
        pulled = pull_bytes_per_ns(node, kernel.units)
        egress = Egress(node, 0, crowd, None if pulled is None else pulled / node.link.bandwidth_gb_per_s)

        def leave(tile: int, now: float) -> float:
            """Return when the tile's unit is free: when it has stored the tile, or at once if others fetch it."""
            stored_ns = max([now, *(egress.send(owner, size, now) for owner, size in parts[tile])])
            return stored_ns if pulled is None else now

        end = run_tiles(idle, kernel.tile_ns, [0.0] * len(order), leave)
    chunk = OPERAND_BYTES * ceil(shape.m / ranks) * shape.n
    reduction = (ranks + 1) * chunk / node.memory.moved_bytes_per_ns
    launch = node.host.event_ns + node.host.launch_ns
    return Fused(max(end, egress.last_ns) + launch + reduction, kernel, choice, reduction, launch)


def pull_bytes_per_ns(node: Machine, units: int) -> float | None:
    """Return the rate at which the units of a GEMM's kernel fetch tiles from other GPUs; None: they store there.

    A unit has one part of a tile under way, so its rate is that part over the latency.
    """
    if node.sharing is None or node.sharing.pull_gb_per_s is None:
        return None
    return min(store_bytes_per_ns(node), units * node.sharing.pull_gb_per_s)


def _send_groups(egress: Egress, parts: Sequence[list[tuple[int, float]]], computed: Sequence[float],
                 tiles: int) -> None:
    """Let a copy engine send an owner's part of this many consecutive tiles, when all of it is computed.

    `parts`: of each tile the owners and bytes; `computed`: when it is.
    """
    groups: dict[tuple[int, int], tuple[float, float]] = {}  # of a group of tiles and an owner: when, bytes
    for tile, of_owners in enumerate(parts):
        for owner, size in of_owners:
            ready_ns, so_far = groups.get((tile // tiles, owner), (0.0, 0.0))
            groups[tile // tiles, owner] = max(ready_ns, computed[tile]), so_far + size
    free, host = 0.0, egress.node.host
    for (_, owner), (ready_ns, size) in sorted(groups.items(), key=lambda one: one[1][0]):
        free = egress.send(owner, size, max(free, ready_ns + host.event_ns) + host.copy_ns)


def _owners(first: int, last: int, firsts: list[int]) -> list[tuple[int, int]]:
    """Return the ranks whose rows lie in [first, last), with how many."""
    return [(rank, min(last, firsts[rank + 1]) - max(first, firsts[rank])) for rank in range(len(firsts) - 1)
            if max(first, firsts[rank]) < min(last, firsts[rank + 1])]


def all_gather_gemm(node: Machine, ranks: int, kernel: GemmKernel, choice: Choice) -> Fused:
    """Play a GEMM whose tiles wait for the signals of the rows that they need, while copy engines bring them.

    Copies start when all GPUs are known to be there; tiles of the rank's own rows need not wait.
    """
    choice = _with_pieces(choice, kernel, ranks)
    shape, firsts, start = kernel.shape, edges(kernel.shape.m, ranks), node.host.event_ns
    last = 0.0
    for rank in ([0] if choice.order == "shifted" else range(ranks)):
        signals = arrivals(node, ranks, OPERAND_BYTES * ceil(shape.m / ranks) * shape.k, choice, rank)
        ready = [max((start + signals[source][piece] for source, piece in _pieces(
            row * kernel.tile[0], min(shape.m, (row + 1) * kernel.tile[0]), firsts, choice.pieces)
            if source != rank), default=0.0) for row in range(kernel.rows)]
        rows = range(kernel.rows) if choice.order == "same" else sorted(range(kernel.rows), key=ready.__getitem__)
        last = max(last, run_tiles([0.0] * kernel.units, kernel.tile_ns,
                                   [ready[row] for row in rows for _ in range(kernel.columns)]))
    return Fused(last, kernel, choice)


def _with_pieces(choice: Choice, kernel: GemmKernel, ranks: int) -> Choice:
    """Return a choice with as many communication tiles as its signals ask for: of the rows of a tile, or of a wave."""
    if choice.signal in (None, "shard"):
        return choice
    at_once = max(1, kernel.units // kernel.columns) if choice.signal == "wave-group" else 1
    return replace(choice, pieces=min(1024, ceil(kernel.shape.m / ranks / (at_once * kernel.tile[0]))))


def _pieces(first: int, last: int, firsts: list[int], pieces: int) -> list[tuple[int, int]]:
    """Return the ranks and communication tiles that rows [first, last) need."""
    pairs = []
    for rank in range(len(firsts) - 1):
        cuts = [firsts[rank] + cut for cut in edges(firsts[rank + 1] - firsts[rank], pieces)]
        pairs += [(rank, piece) for piece in range(pieces) if max(first, cuts[piece]) < min(last, cuts[piece + 1])]
    return pairs


def arrivals(node: Machine, ranks: int, chunk_bytes: float, choice: Choice, rank: int = 0) -> dict[int, list[float]]:
    """Return when the signal of each communication tile of each rank's rows is set at `rank`, ns.

    Copies one after the other on one stream: through a switch from each peer directly, the next rank's first; between
    CPUs around a ring, so that each link is used all the time; over links of their own side by side. From another node
    a GPU gets the rows of its place there through its network card, and hands them on.
    """
    link, host = node.link, node.host
    efficiency = link.push_efficiency if choice.transfer == "push" else link.pull_efficiency
    crowd = ranks - 1 if choice.order == "same" and link.kind == "switch" else 1
    piece_bytes = chunk_bytes / choice.pieces
    copy_ns = host.copy_ns + piece_bytes * crowd / (link.bandwidth_gb_per_s * efficiency)
    after_ns = link.latency_ns * (2 if choice.transfer == "push" else 1)  # a pushed tile's signal goes the same way
    here, size = rank // node.gpus * node.gpus, min(ranks, node.gpus)
    free, signal_times = 0.0, {rank: [0.0] * choice.pieces}

    def within(first: int, there: list[float]) -> None:
        """Return the rows of the ranks from `first` on that the GPUs of this node have at `there`."""
        nonlocal free
        begun, before = free, there
        for distance in range(1, size):
            if choice.order == "same":
                place = distance - 1 if distance - 1 < rank - here else distance
            else:
                place = (rank - here + (-distance if link.kind == "host" else distance)) % size
            if link.kind == "full":
                free = begun
            signals = []
            for piece in range(choice.pieces):
                free = max(free, before[piece]) + copy_ns
                signals.append(free + after_ns)
            signal_times[first + place] = signals
            before = signals if link.kind == "host" else there

    within(here, signal_times[rank])
    if ranks > node.gpus:
        far, network = (here + node.gpus) % ranks, node.network
        each = host.copy_ns + piece_bytes / (network.bandwidth_gb_per_s * network.efficiency)
        signal_times[far + rank - here] = [each * (piece + 1) + network.latency_ns for piece in range(choice.pieces)]
        within(far, signal_times[far + rank - here])
    return signal_times


def choices_of(operator: str, shape: Shape, ranks: int) -> list[Choice]:
    """Return what tuning tries besides kernels.

    A reduce-scatter has nothing more; an all-gather has who copies, and communication tiles from a rank's rows on,
    halved as long as they have 64 rows.
    """
    if operator == "gemm-rs":
        return [Choice()]
    pieces = [1]
    while shape.m // ranks // (2 * pieces[-1]) >= 64:
        pieces.append(2 * pieces[-1])
    return [Choice("shifted", transfer, count) for transfer, count in product(TRANSFERS, pieces)]


def fused(node: Machine, operator: str, shape: Shape, ranks: int, choice: Choice | None = None) -> Fused:
    """Return the fused kernel's run with `choice` and the fastest GEMM kernel for it; None: the best of all choices."""
    play = gemm_reduce_scatter if operator == "gemm-rs" else all_gather_gemm
    candidates = tile_kernels(node, shape, split=False, band=max(1, shape.m // ranks))
    candidates = [one for one in candidates if one.ns <= _WORTH_A_LOOK * candidates[0].ns]
    tried = choices_of(operator, shape, ranks) if choice is None else [choice]
    return min((play(node, ranks, one, what) for one in candidates for what in tried), key=lambda run: run.ns)
