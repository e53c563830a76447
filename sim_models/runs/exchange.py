"""Exchange of a GEMM's, a GEMV's or a pooling's output: a collective, by which algorithm, over which links."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter

import numpy as np

from t3sim.base.custom import is_custom, make_custom
from t3sim.base.errors import BadInput, choices
from t3sim.base.line import LINE_BYTES, lines_of
from t3sim.collectives import CollectiveError, Program, direct, in_switch
from t3sim.collectives.algorithms import COLLECTIVES, algorithms
from t3sim.collectives.all_reduce import all_reduce
from t3sim.collectives.all_to_all import all_to_all
from t3sim.collectives.schedule import FIXED_TERMS, Role, most_terms, roles_of
from t3sim.collectives.schedule.sums import more_bits
from t3sim.machine import Machine
from t3sim.machine.topologies import Topology, fully_connected, named_topology
from t3sim.runs import signals
from t3sim.runs.dispatch_before import dispatch_tiling
from t3sim.runs.gather_before import tiling_for
from t3sim.runs.sums import Sums
from t3sim.workload.workloads import DispatchWorkload, ExpertsWorkload, Workload


@dataclass(frozen=True)
class Exchange:
    """A collective on the output of a GEMM; names are those of `t3 collective`."""

    collective: str = "rs"
    algorithm: str = "ring"
    topology: str = "ring"  #: of a torus or nodes with its size, else without it, which is the number of GPUs
    before: bool = False  #: it brings the activations before the GEMM, instead of taking the output
    producer: str = "gemm"  #: what makes the output
    signal: str | None = None  #: of `signals.SIGNALS`: what must be complete before it is sent on; None: the machine's
    sums: Sums = Sums()  #: what memory adds in, and what links carry

    @property
    def name(self) -> str:
        """The name for people and for files."""
        return "-".join((self.collective, self.algorithm, self.topology,
                         *(["before"] if self.before else []), *([self.signal] if self.signal else []),
                         *([self.sums.name] if self.sums.name else [])))

    @property
    def reduces(self) -> bool:
        """Say whether it is the ring reduce-scatter of the T3 paper, whatever its signals."""
        return replace(self, signal=None, sums=Sums(), producer=REDUCED.producer) == REDUCED

    @property
    def operator(self) -> str:
        """The name that `t3 run` has for a producer with it."""
        first = self.before and self.collective == "ag"
        return f"{self.collective}-{self.producer}" if first else f"{self.producer}-{self.collective}"

    @property
    def hides(self) -> tuple[str, ...]:
        """Phases of the baseline that run concurrently with the GEMM; an all-gather that is not among them follows."""
        return _HIDES[self.collective]

    @property
    def of_parts(self) -> bool:
        """Say whether each GPU makes a part of the output, and nothing is added."""
        return self.collective in ("ag", "a2a") and not self.before

    @property
    def adds(self) -> bool:
        """Say whether memory adds anything."""
        return self.collective in ("rs", "ar", COMBINE) and not self.before

    def link_bytes(self, workload: Workload) -> float:
        """Compute the bytes that a GPU sends (receives in a gather by a switch; on the busiest of several links)."""
        if isinstance(workload, ExpertsWorkload):
            element_bytes = workload.format.bytes
            sent_bytes = self._most_tokens(workload) * workload.exchanged_elements * element_bytes if self.passed_on \
                else workload.sent_bytes
            return sent_bytes * self.sums.wire_bytes(workload) / workload.format.bytes
        if self.before:
            share = self._fullest(workload.tp) if self.by_levels else (workload.tp - 1) / workload.tp
            return workload.activation_bytes * share
        array_bytes = workload.output_bytes * (workload.tp - 1) / workload.tp * self.sums.wire_bytes(workload) / (
            workload.format.bytes)
        if self.algorithm == IN_SWITCH and self.collective == "ar":  # the others' parts, and a sum once
            return workload.output_bytes
        if self.by_levels:
            return workload.m * workload.n * self.sums.wire_bytes(workload) * self._fullest(workload.tp)
        return array_bytes / workload.tp if self.collective == "a2a" else array_bytes * len(self.hides)

    def exchanged(self, workload: Workload) -> tuple[int, int]:
        """Return rows and columns of the moved matrix: the output, or the activations."""
        if not self.before:
            return workload.m, workload.n
        if isinstance(workload, DispatchWorkload):
            return workload.m * workload.per_token, workload.exchanged_elements
        return workload.m, workload.k

    def to_json(self) -> dict[str, str]:
        return {"operator": self.operator, "algorithm": self.algorithm, "topology": self.topology,
                **({"signal": self.signal} if self.signal else {}), **self.sums.to_json()}

    def links(self, ranks: int) -> Topology:
        """Return the topology for this many GPUs. Raises TopologyError.

        A GPU's links to all others together have its bandwidth, so that topologies compare.
        """
        if self.topology == "full":
            return fully_connected(ranks, divided=True)
        if is_custom(self.topology):
            topology = make_custom("exchange.topology", self.topology, Topology, ranks)
        else:
            topology = named_topology(self.topology if ":" in self.topology else f"{self.topology}:{ranks}")
        if topology.gpus != ranks:
            raise BadInput(f"exchange.topology = {self.topology} is of {topology.gpus} GPUs, and here are {ranks}")
        return topology

    def _fullest(self, ranks: int) -> float:
        """Compute the share of the output on the busiest link."""
        program, topology = self.program(ranks), self.links(ranks)
        carried = Counter(link for one in program.transfers for link in topology.way(one.source, one.destination))
        return max(carried.values()) / program.chunks

    def _most_tokens(self, workload: ExpertsWorkload) -> int:
        """Count the tokens on the busiest link, once for each of their experts."""
        topology, carried = self.links(workload.tp), Counter()
        for (source, to), tokens in np.ndenumerate(workload.between if self.before else workload.between.T):
            carried.update(dict.fromkeys(topology.way(source, to), int(tokens)))
        return max(carried.values())

    @property
    def by_levels(self) -> bool:
        """Say whether the baseline's kernels run level by level, because a GPU has more peers than one neighbour."""
        return not self.of_experts and (
            self.algorithm in LEVELLED or is_custom(self.algorithm) or self.passed_on)

    @property
    def passed_on(self) -> bool:
        """Say whether packets between two GPUs pass through others."""
        return self.algorithm == "direct" and ":" in self.topology

    @property
    def every_gpu(self) -> bool:
        """Say whether GPUs differ, so that a representative GPU is impossible."""
        return ":" in self.topology or is_custom(self.algorithm) or self.of_experts

    @property
    def unlike(self) -> str:
        """Say why every GPU is simulated without `--every-gpu`."""
        return "tokens tell them apart" if self.of_experts else "chunks are empty"

    @property
    def of_experts(self) -> bool:
        """Say whether it moves tokens to their experts, or the experts' outputs back."""
        return self.collective in EXPERTS

    @property
    def custom(self) -> dict[str, str]:
        """The references among its parts, by their keys."""
        parts = {"layer.operator": self.producer, "exchange.algorithm": self.algorithm,
                 "exchange.topology": self.topology}
        return {key: name for key, name in parts.items() if is_custom(name)}

    def program(self, ranks: int) -> Program:
        """Return who sends which chunk to whom. Raises BadInput, TopologyError."""
        if self.algorithm == IN_SWITCH:
            return _IN_SWITCH[self.collective](ranks)
        if is_custom(self.algorithm):
            return custom_program(self.algorithm, self.collective, ranks)
        topology = self.links(ranks)
        if self.collective == COMBINE:  # also over links of which sums of a whole array have other algorithms
            return direct.reduce_scatter(topology.gpus)
        possible = algorithms("a2a" if self.collective == DISPATCH else self.collective, topology)
        if self.algorithm not in possible:
            raise BadInput(f"exchange.algorithm = {self.algorithm!r} is not possible on {self.topology}:{ranks}: "
                           f"allowed are {choices(self.algorithm, possible)}")
        return possible[self.algorithm].program()

    def check_sums(self, order: str, workload: Workload, parts: int = 1) -> None:
        """Refuse sums whose bits depend on which term comes first, if their order is to be fixed. Raises BadInput."""
        if order not in SUM_ORDERS:
            raise BadInput(f"exchange.sums = {order!r} is unknown: allowed are {choices(order, SUM_ORDERS)}")
        if self.sums.in_any_order:
            return
        ranks = workload.tp
        if order == "fixed" and (terms := self.terms(workload, parts)) > FIXED_TERMS:
            split = f" of a GEMM whose K is in {parts} parts" if parts > 1 else ""
            if self.collective == COMBINE:
                raise BadInput(f"exchange.sums = fixed: {terms} experts of a token are added up in the order in which "
                               "they come: allowed are two, and exchange.accumulate = fixed")
            raise BadInput(f"exchange.sums = fixed: exchange.algorithm = {self.algorithm} between {ranks} GPUs{split} "
                           f"adds up {terms} terms in the order in which they come: allowed are ring and both-rings "
                           "of whole K, whose sums have two, and exchange.accumulate = fixed")

    def terms(self, workload: Workload, parts: int = 1) -> int:
        """Return the terms of the largest sum; `parts`: of the GEMM's K."""
        summed = isinstance(workload, ExpertsWorkload) and not self.before
        return workload.per_token if summed else most_terms(self.program(workload.tp), parts)

    def hardware(self, machine: Machine, workload: Workload) -> Machine:
        """Return the machine with hardware for a direct exchange or split-K. Raises BadInput if it is too much.

        A direct exchange needs dispatch windows that know the heads of all other GPUs, regions for the tiles of each,
        and counters for the updates of all. If a tile goes to all others, a region needs a route to each of them,
        unless a switch copies the tile.
        Split-K needs counters for the updates of all workgroups of a tile.
        """
        workload = self.sums.of(workload)
        ranks, gpu = workload.tp, machine.gpu
        if isinstance(workload, DispatchWorkload):
            return _for_dispatch(_with_peers(machine, self.program(ranks), workload.format.bytes), workload)
        if self.before:
            return _with_ready_table(machine if self.algorithm == "ring" else _with_peers(
                machine, self.program(ranks), workload.format.bytes), workload)
        if self.signal:
            return signals.hardware(machine, self.signal)
        if self.by_levels:
            return _with_peers(machine, self.program(ranks), workload.sum_bytes)
        if self.algorithm not in ("direct", IN_SWITCH):
            return machine if gpu.k_parts == 1 else _counting(
                machine, roles_of(self.program(ranks), parts=gpu.k_parts), workload.sum_bytes)
        if ranks - 1 > MOST_PEERS:
            raise BadInput(f"exchange.algorithm = {self.algorithm} between {ranks} GPUs: a dispatch window knows the "
                           f"heads of at most {MOST_PEERS} others")
        tile_bytes = gpu.tile_m * gpu.tile_n // gpu.wavefronts_per_workgroup * workload.sum_bytes
        copies = ranks - 1 if self.collective in ("ag", "ar") and self.algorithm != IN_SWITCH else 1
        if self.algorithm == IN_SWITCH and self.collective != "ag":
            machine = counting_parts(machine, ranks)
        parts = workload.per_token if isinstance(workload, ExpertsWorkload) else ranks * gpu.k_parts
        return _with(machine, peers=ranks - 1, copies=copies, counted=parts * tile_bytes + (self.collective == COMBINE))


def counting_parts(machine: Machine, ranks: int) -> Machine:
    """Return the machine with channels that count a packet as often as it has parts, of all GPUs but one."""
    bits = max(machine.channels.more_bits, _room(_PARTS_BITS, more_bits(ranks)))
    return machine.changed(channels={"more_bits": bits})


def kept_together(machine: Machine, ranks: int, chunk_bytes: int) -> Machine:
    """Return the machine with a collective's kernels whose parts of a chunk come to its tables close to each other.

    What all units of a GPU have under way of a chunk is at most half of the tables of a GPU's ports, by shorter, then
    by fewer workgroups; the other half is for what GPUs are apart. Tables that hold a whole chunk change nothing.
    Raises BadInput if a line of each unit is too much for the model of a switch, whose tables must never be full.
    """
    switch, kernel, units = machine.switch, machine.collective, machine.gpu.compute_units
    if switch is None:
        return machine
    most = switch.planes * switch.merge_sets * switch.merge_ways
    half, lines = most // 2, max(1, kernel.workgroup_bytes // (ranks - 1) // LINE_BYTES)
    if lines_of(chunk_bytes) <= most or units * kernel.workgroups_per_cu * lines <= half:
        return machine
    if units > half and not switch.rtl:
        raise BadInput(f"switch.merge_sets x switch.merge_ways: {most} lines do not keep the sums of {units} compute "
                       f"units apart: {2 * units} or more, or switch.rtl = true, whose tables may be full")
    lines = max(1, min(lines, half // (units * kernel.workgroups_per_cu)))
    places = max(1, min(kernel.workgroups_per_cu, half // (units * lines)))
    return machine.changed(collective={"workgroup_bytes": lines * LINE_BYTES * (ranks - 1),
                                       "workgroups_per_cu": places})


def _with_peers(machine: Machine, program: Program, element_bytes: int) -> Machine:
    """Return the machine with hardware for a program whose GPUs have several peers. Raises BadInput if too many."""
    roles = roles_of(program, parts=machine.gpu.k_parts)
    peers = max(len({route.gpu for role in gpu_roles for route in ways(role)}) for gpu_roles in roles
                for ways in (attrgetter("routes"), attrgetter("fed_by")))
    if peers > MOST_PEERS:
        raise BadInput(f"a GPU exchanges with {peers} others: a dispatch window knows the heads of at most "
                       f"{MOST_PEERS}")
    copies = 1 if program.in_switch else max(len(role.routes) for gpu_roles in roles for role in gpu_roles)
    return _counting(_with(machine, peers=peers, copies=copies), roles, element_bytes)


def _counting(machine: Machine, roles: Sequence[Sequence[Role]], element_bytes: int) -> Machine:
    """Return the machine with counters for all updates of a tile that GPUs with these roles wait for."""
    gpu, updates = machine.gpu, max(role.updates for own in roles for role in own)
    tile_bytes = gpu.tile_m * gpu.tile_n // gpu.wavefronts_per_workgroup * element_bytes
    return _with_counters(machine, updates * tile_bytes)


def _with_ready_table(machine: Machine, workload: Workload) -> Machine:
    """Return the machine with a counter for each group of the activations. Raises BadInput, TilingError.

    The Tracker's counters hold the bytes of their tiles, and there are regions for ragged ones.
    """
    tiling = tiling_for(machine, workload)
    if tiling.tile_columns > MOST_GROUPS:
        raise BadInput(f"M={workload.m}: the ready table counts {MOST_GROUPS} groups of {tiling.tile_n} tokens at most")
    alike = workload.m % (workload.tp * tiling.tile_n) == 0
    return _counting_groups(machine, tiling.tile_columns, machine.dma.regions if alike else MOST_REGIONS,
                            tiling.tile_m * tiling.wf_columns * tiling.element_bytes)


def _for_dispatch(machine: Machine, workload: DispatchWorkload) -> Machine:
    """Return the machine with a counter for each group of tokens of a GPU, and commands for slices of tiles.

    A dispatch window must hold a slice, all tiles that a GPU sends and gets in it, and the queue of DMA commands what
    is in the windows of all others; a queue that is too short becomes one for several slices, with which GPUs wait less
    for one another's windows. Raises BadInput, TilingError.
    """
    tiling, ranks = dispatch_tiling(machine, workload, MOST_REGIONS), workload.tp
    groups = tiling.tile_columns // ranks ** 2 * 2 * (ranks - 1)
    if groups > MOST_GROUPS:
        raise BadInput(f"M={workload.m}: the ready table counts {MOST_GROUPS} groups of up to {tiling.tile_n} tokens, "
                       f"and the GPU with the most has places for {groups}")
    slice_ids = 2 * (ranks - 1) * tiling.tile_rows
    commands = slice_ids * min(machine.tracker.ways, tiling.wavefronts) * (ranks - 1)
    if commands > MOST_COMMANDS:
        raise BadInput(f"{ranks} GPUs: a slice of {slice_ids} tiles at each needs a queue of {commands} DMA commands: "
                       f"[dma] ready_commands is at most {MOST_COMMANDS}")
    if commands > machine.dma.ready_commands:
        of_several_slices = min(_room(_COMMANDS, _SLICES * commands), _MOST_FOR_SLICES)
        machine = machine.changed(dma={"ready_commands": max(_room(_COMMANDS, commands), of_several_slices)})
    return _counting_groups(machine, groups, MOST_REGIONS, tiling.tile_m * tiling.wf_columns * tiling.element_bytes)


def _counting_groups(machine: Machine, groups: int, regions: int, tile_bytes: int) -> Machine:
    """Return the machine with this many groups and regions, whose Tracker counts a wavefront tile's bytes and one."""
    dma = {"ready_groups": max(machine.dma.ready_groups, _room(_GROUPS, groups)), "regions": regions}
    return _with_counters(machine.changed(dma=dma), tile_bytes + 1)


def _with(machine: Machine, *, peers: int, copies: int, counted: int = 0) -> Machine:
    """Return the machine with all regions and routes, and room for peers, copies of a line, and bytes of a tile."""
    dma = {"peers": max(machine.dma.peers, _room(_OTHERS, peers)), "regions": MOST_REGIONS, "routes": MOST_ROUTES,
           "copies": max(machine.dma.copies, _room(_OTHERS, copies))}
    return _with_counters(machine.changed(dma=dma), counted)


def _with_counters(machine: Machine, counted: int) -> Machine:
    """Return the machine whose Tracker counts up to this many bytes."""
    if counted >> machine.tracker.count_bits == 0:
        return machine
    return machine.changed(tracker={"count_bits": max(signals.COUNT_BITS, counted.bit_length())})


def _room(sizes: Sequence[int], needed: int) -> int:
    """Return the smallest sufficient size; if none is, the needed size, which the machine then refuses."""
    return next((size for size in sizes if size >= needed), needed)


#: Sizes of what an exchange gives a machine: few, so that exchanges share RTL that is compiled already.
_OTHERS = (1, 3, 7, 15, 31)  # GPUs that a line goes to, or that heads come from
_PARTS_BITS = (0, 3, 7)
_GROUPS = tuple(1 << bits for bits in range(5, 13))
_COMMANDS = tuple(1 << bits for bits in range(8, 16))
_SLICES = 4  #: in a window whose machine's queue of commands does not hold one
_MOST_FOR_SLICES = 4096  #: commands, for more than one slice

MOST_GROUPS = 4096  #: as `[dma]` of a machine allows
MOST_PEERS, MOST_REGIONS, MOST_ROUTES, MOST_COMMANDS = 31, 64, 64, 65535  #: as `[dma]` of a machine allows

#: Sums of what experts make of each token at the token's owner: a reduce-scatter to which few add, and unevenly.
COMBINE = "combine"
#: Tokens that go to their experts: an uneven all-to-all before these multiply them.
DISPATCH = "dispatch"
EXPERTS = (COMBINE, DISPATCH)  #: exchanges of experts' tokens
#: Operators that fuse a producer with a collective, and which.
FUSED_OPERATORS = {"gemm-rs": "rs", "gemm-ar": "ar", "gemm-ag": "ag", "gemm-a2a": "a2a", "ag-gemm": "ag",
                   "gemv-ar": "ar", "embedding-a2a": "a2a", "moe-combine": COMBINE,
                   "moe-dispatch": DISPATCH}
BEFORE = ("ag-gemm", "moe-dispatch")  #: those of them whose collective comes before the GEMM
_HIDES = {"rs": ("reduce-scatter",), "ar": ("reduce-scatter", "all-gather"), "ag": ("all-gather",),
          "a2a": ("all-to-all",), COMBINE: ("combine",), DISPATCH: ("dispatch",)}


_TO_EACH = ("a2a", *EXPERTS)  #: whose GPUs send something else to every other one

#: Links between GPUs that `t3 run` knows; a ring's are the same around a switch.
TOPOLOGIES = ("ring", "switch", "full", "torus:RxC", "nodes:NxG")
ALGORITHMS = ("ring", "both-rings", "direct", "hierarchical", "all-rings", "in-switch")
IN_SWITCH = ALGORITHMS[-1]
SUM_ORDERS = ("arrival", "fixed")  #: of additions
LEVELLED = ("both-rings", "hierarchical", "all-rings")  #: whose GPUs have several neighbours, and levels
_IN_SWITCH = {"rs": in_switch.reduce_scatter, "ag": in_switch.all_gather,
              "ar": lambda ranks: all_reduce(in_switch.reduce_scatter(ranks), in_switch.all_gather(ranks))}


@cache
def custom_program(algorithm: str, collective: str, ranks: int) -> Program:
    """Make the program of a custom algorithm, a function of the collective's name and the ranks. Raises BadInput.

    It is checked: every chunk must end where the collective wants it, with every contribution once.
    """
    key = "exchange.algorithm"
    program = make_custom(key, algorithm, Program, collective, ranks)
    try:
        program.check()
    except CollectiveError as error:
        raise BadInput(f"{key} = {algorithm}: {error}") from None
    terms = 1 if collective == "ag" else ranks
    if collective == "a2a":
        right = program.goal == all_to_all(ranks).goal
    else:
        ends = [(rank, chunk) for rank in range(ranks) for chunk in range(program.chunks)]
        right = all(len(one) == terms for one in program.goal.values()) and (
            sorted(chunk for _, chunk in program.goal) == list(range(program.chunks)) if collective == "rs" else
            sorted(program.goal) == ends)
    if program.ranks != ranks or not right:
        raise BadInput(f"{key} = {algorithm} makes a program of {program.ranks} ranks whose goal is not that of the "
                       f"{COLLECTIVES[collective]} of {ranks}")
    return program


def fused_collective(operator: str) -> str | None:
    """Return the collective that an operator fuses its kernel with, `rs` of `gemm-rs`; None: it fuses none."""
    producer, _, collective = operator.rpartition("-")
    if is_custom(producer) and collective in COLLECTIVES:
        return collective
    return FUSED_OPERATORS.get(operator)


def own_topology(collective: str | None) -> str:
    """Name the links of a collective for which none are named: a ring, or a switch if everyone sends to everyone."""
    return "switch" if collective in _TO_EACH else "ring"


def own_algorithm(collective: str | None, topology: str) -> str:
    """Name the algorithm of links for which none is named. Raises BadInput for custom links."""
    if is_custom(topology):
        raise BadInput(f"exchange.topology = {topology} needs exchange.algorithm = NAME")
    if ":" in topology:
        return "hierarchical"
    return "direct" if topology == "full" or collective in _TO_EACH else "ring"


def check_topology(topology: str) -> None:
    """Refuse links that there are not. Raises BadInput."""
    sized = topology.partition(":")[0] in ("torus", "nodes")
    if topology not in TOPOLOGIES[:3] and not sized and not is_custom(topology):
        raise BadInput(f"exchange.topology = {topology!r} is unknown: allowed are {choices(topology, TOPOLOGIES)}")


def fused_with(operator: str, topology: str | None = None, algorithm: str | None = None,
               signal: str | None = None, sums: Sums = Sums()) -> Exchange:
    """Return the exchange with which an operator fuses its GEMM. Raises BadInput.

    A topology that is not given is the operator's own, an algorithm that is not given the topology's.
    """
    collective = fused_collective(operator)
    if collective is None:
        raise BadInput(f"layer.operator = {operator!r} is unknown: allowed are {choices(operator, FUSED_OPERATORS)}")
    topology = own_topology(collective) if topology is None else topology
    if algorithm is None:
        to_each = collective in _TO_EACH and not is_custom(topology)
        algorithm = "direct" if to_each else own_algorithm(collective, topology)
    custom = is_custom(algorithm) or is_custom(topology)
    if algorithm not in ALGORITHMS and not is_custom(algorithm):
        raise BadInput(f"exchange.algorithm = {algorithm!r} is unknown: allowed are {choices(algorithm, ALGORITHMS)}")
    check_topology(topology)
    to_each = collective in _TO_EACH and algorithm == "direct"
    if not custom and not to_each and (":" in topology) != (algorithm in ("hierarchical", "all-rings")) or (
            algorithm == "both-rings" and topology != "ring"):
        raise BadInput(f"exchange.algorithm = {algorithm} does not go with exchange.topology = {topology}: torus:RxC "
                       "has hierarchical and all-rings, nodes:NxG hierarchical, and both-rings are of a ring")
    if algorithm == IN_SWITCH and topology != "switch":
        raise BadInput(f"exchange.algorithm = {IN_SWITCH} adds and copies in a switch: it needs exchange.topology = "
                       "switch")
    if algorithm == "direct" and topology == "ring":
        raise BadInput("exchange.algorithm = direct sends to every GPU, in a ring over the others' links too, where "
                       "full buffers could hold up each other in a circle: it needs exchange.topology = switch or "
                       "full")
    if algorithm == "ring" and topology == "full":
        raise BadInput("exchange.topology = full divides a GPU's bandwidth among its links, of which a ring uses "
                       "one: it needs exchange.algorithm = direct")
    if signal not in (None, *signals.SIGNALS):
        raise BadInput(f"exchange.signal = {signal!r} is unknown: allowed are {choices(signal, signals.SIGNALS)}")
    if signal and (operator, algorithm) != ("gemm-rs", "ring"):
        raise BadInput(f"exchange.signal = {signal} says what DMA waits for around a ring: it needs layer.operator = "
                       "gemm-rs and exchange.algorithm = ring")
    before = operator in BEFORE
    if algorithm != "direct" and not custom and collective in _TO_EACH:
        raise BadInput(f"layer.operator = {operator} sends something else to every GPU: it needs exchange.algorithm = "
                       "direct")
    first = before and collective == "ag"
    producer = operator.removeprefix(f"{collective}-") if first else operator.removesuffix(f"-{collective}")
    exchange = Exchange(collective, algorithm, topology, before, producer, signal, sums)
    sums.check(exchange.operator, algorithm)
    return exchange


REDUCED = Exchange()  #: by a ring reduce-scatter, as in the T3 paper
