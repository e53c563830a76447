"""MSCCL's XML: reads collectives of other tools as programs, and writes programs for these tools.

A GPU has threadblocks, each with at most one peer to send to and one to receive from. Their steps run in order, and may
wait for a step of another threadblock. A send is matched with the receiver's next receive of that pair and channel. The
reader takes schedules of msccl-tools (all-reduce, reduce-scatter, all-gather, all-to-all) with steps of types s, r,
rcs, rrc, rrs, rrcs, re, cpy and nop.
"""

import xml.etree.ElementTree as xml
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t3sim.base.bounded import LARGEST_TEXT, MOST_DEPENDENCIES, MOST_SLOTS, MOST_TRANSFERS, read_bounded, reading
from t3sim.base.numerals import whole
from t3sim.collectives.program import CollectiveError, Contributions, Op, Program, Transfer, all_ranks

#: Names in the files.
KINDS = {"ar": "allreduce", "rs": "reduce_scatter", "ag": "allgather", "a2a": "alltoall"}
_RECEIVES = {"r", "rcs", "rrc", "rrs", "rrcs"}
_SENDS = {"s", "rcs", "rrs", "rrcs"}
_ADDS = {"rrc", "rrs", "rrcs"}
_TYPES = {*_RECEIVES, *_SENDS, "re", "cpy", "nop"}
_LARGEST = 256  #: GPUs
_MOST_PASTS = 1 << 28  #: steps times threadblocks

_StepName = tuple[int, int, int]  # GPU, threadblock, step
_Slot = tuple[int, str, int]  # GPU, buffer, offset in chunks


class _Instruction(NamedTuple):
    """One instruction of the file."""

    type: str
    source: tuple[str, int]  #: buffer and offset
    target: tuple[str, int]
    count: int
    after: tuple[int, int] | None  #: threadblock and step of this GPU
    send: int
    receive: int
    channel: int


def read_msccl(path: Path) -> tuple[str, Program]:
    """Return the collective's kind (a key of `KINDS`) and its program, checked. Raises CollectiveError, OSError."""
    with reading(str(path), "a plan", CollectiveError):
        text = read_bounded(path, LARGEST_TEXT).decode("utf-8-sig")
        if "<!" in text.replace("<!--", ""):
            raise CollectiveError(f"{path.name} declares entities or the like, which plans do not need")
        try:
            root = xml.fromstring(text)
            flags = {in_place: _number(root, name, 0, 1)
                     for in_place, name in ((True, "inplace"), (False, "outofplace")) if name in root.attrib}
            if len(flags) == 1:  # the other one is its opposite
                flags |= {not in_place: 1 - value for in_place, value in flags.items()}
            allowed = [in_place for in_place, value in flags.items() if value]
            if flags and not allowed:
                raise CollectiveError("inplace and outofplace are both 0")
            return read_each_way(lambda in_place: _MscclReader(root, in_place).program(), allowed)
        except xml.ParseError as error:
            raise CollectiveError(f"{path.name} is not XML: {error}") from None
        except CollectiveError as error:
            raise CollectiveError(f"{path.name}: {error}") from None


def read_each_way(read: Callable[[bool], tuple[str, Program]], allowed: Sequence[bool]) -> tuple[str, Program]:
    """Read a plan with input and output in one array (True) or in two (False).

    `allowed`: the values that the plan must work with; if empty, the first that works counts.
    """
    if allowed:
        return [read(in_place) for in_place in allowed][0]
    try:
        return read(True)
    except CollectiveError:
        return read(False)


@dataclass
class _MscclReader:
    root: xml.Element
    in_place: bool
    steps: dict[_StepName, _Instruction] = field(default_factory=dict)
    scratch: dict[int, int] = field(default_factory=dict)  #: chunks of each GPU's scratch, if the file says so

    def program(self) -> tuple[str, Program]:
        root = self.root
        if root.tag != "algo":
            raise CollectiveError(f"<{root.tag[:20]}> is no <algo> of MSCCL")
        names = {name: kind for kind, name in KINDS.items()} | {"reducescatter": "rs"}
        if root.get("coll") not in names:
            raise CollectiveError(f"coll = {str(root.get('coll'))[:20]!r} is unknown: allowed are {', '.join(names)}")
        kind, ranks = names[root.get("coll")], _number(root, "ngpus", 2, _LARGEST)
        self._read_steps(ranks)
        chunks = _number(root, "nchunksperloop", 1, 1 << 16)
        if kind != "ar" and chunks % ranks:
            raise CollectiveError(f"nchunksperloop = {chunks} is no multiple of the {ranks} GPUs")
        check_size(ranks, chunks * (ranks if kind == "a2a" else 1), sum(step.count for step in self.steps.values()))
        return kind, self._transfers(kind, ranks, chunks)

    def _read_steps(self, ranks: int) -> None:
        for gpu in self.root.iter("gpu"):
            rank = _number(gpu, "id", 0, ranks - 1)
            if "s_chunks" in gpu.attrib:
                self.scratch[rank] = _number(gpu, "s_chunks", 0, 1 << 20)
            for block in gpu.iter("tb"):
                number = _number(block, "id", 0, 1 << 16)
                send, receive = (_number(block, name, -1, ranks - 1) for name in ("send", "recv"))
                steps = list(block.iter("step"))
                for index, step in enumerate(steps):  # in the order of their numbers, not of lines
                    name = rank, number, _number(step, "s", 0, len(steps) - 1) if "s" in step.attrib else index
                    if name in self.steps:
                        raise CollectiveError(f"{_named(name)} appears twice")
                    self.steps[name] = _step(step, send, receive, _number(block, "chan", 0, 1 << 16))

    def _transfers(self, kind: str, ranks: int, chunks: int) -> Program:
        before, sender_of = self._predecessors()
        buffers = Buffers(kind, ranks, chunks, self.in_place, self.scratch, before, _named)
        transfers = buffers.transfers
        received_in: dict[_StepName, list[int]] = defaultdict(list)  # transfers that arrive in a step
        arrived_before: dict[_StepName, frozenset[int]] = {}  # in all steps before it, of the same GPU
        results: dict[_StepName, list[SlotContent]] = {}  # of each step, which a sending step sends
        dependencies_left = MOST_DEPENDENCIES
        for name in buffers.operations():
            step, rank = self.steps[name], name[0]
            arrived_before[name] = frozenset().union(*(arrived_before[one] | {*received_in[one]}
                                                       for one in before[name] if one[0] == rank))
            if (dependencies_left := dependencies_left - len(arrived_before[name])) < 0:
                raise CollectiveError(f"its steps depend on more than {MOST_DEPENDENCIES:,} transfers in total")
            results[name] = []
            for offset in range(step.count):
                source, target = ((rank, buffer, first + offset) for buffer, first in (step.source, step.target))
                if step.type not in _RECEIVES:
                    content = buffers.read(name, source)
                else:
                    sender, op = sender_of[name], Op.ADD if step.type in _ADDS else Op.COPY
                    received_in[name].append(len(transfers))
                    arrival = () if op is Op.ADD else (len(transfers),)
                    content = results[sender][offset]._replace(arrivals=arrival)
                    transfers.append(Transfer(content.chunk, sender[0], rank, op,
                                              tuple(sorted(arrived_before[sender] | {*received_in[sender]}))))
                if step.type in ("rrc", "rrcs") and source == target:
                    content = buffers.add(name, target, content)
                elif step.type in _ADDS or step.type == "re":
                    content = buffers.total(name, buffers.read(name, target if step.type == "re" else source), content)
                if step.type in ("r", "rcs", "cpy", "re") or step.type in ("rrc", "rrcs") and source != target:
                    buffers.write(name, target, content)
                results[name].append(content)
        return buffers.program(ranks, chunks)

    def _predecessors(self) -> tuple[dict[_StepName, set[_StepName]], dict[_StepName, _StepName]]:
        """Return the predecessors of each step, and the sending step of each receiving step.

        Predecessors are the step before it in its threadblock, the step that it names, and the step that sends to it.
        """
        before: dict[_StepName, set[_StepName]] = {name: set() for name in self.steps}
        unmatched_sends: dict[tuple[int, int, int], deque[_StepName]] = defaultdict(deque)
        for name, step in sorted(self.steps.items()):
            rank, block, step_index = name
            if step_index:
                before[name].add((rank, block, step_index - 1))
            if step.after is not None:
                if (rank, *step.after) not in self.steps:
                    raise CollectiveError(f"{_named(name)} waits for threadblock {step.after[0]}, step "
                                          f"{step.after[1]}, which does not exist")
                before[name].add((rank, *step.after))
            if step.type in _SENDS:
                unmatched_sends[rank, step.send, step.channel].append(name)
        sender_of = {}
        for name, step in sorted(self.steps.items()):
            if step.type in _RECEIVES:
                sends = unmatched_sends[step.receive, name[0], step.channel]
                if not sends:
                    raise CollectiveError(f"{_named(name)} receives from GPU {step.receive} what it does not send")
                sender_of[name] = sends.popleft()
                if self.steps[sender_of[name]].count != step.count:
                    raise CollectiveError(f"{_named(name)} receives {step.count} chunks of "
                                          f"{self.steps[sender_of[name]].count} that are sent")
                before[name].add(sender_of[name])
        for (rank, receiver, _), remaining in unmatched_sends.items():
            if remaining:
                raise CollectiveError(f"{_named(remaining[0])} sends to GPU {receiver} what it does not receive from "
                                      f"{rank}")
        return before, sender_of


def check_size(ranks: int, chunks: int, transfers: int) -> None:
    """Raise CollectiveError for a plan that is too large."""
    if ranks * chunks > MOST_SLOTS:
        raise CollectiveError(f"{chunks:,} chunks on {ranks} GPUs: at most {MOST_SLOTS:,} on all of them")
    if transfers > MOST_TRANSFERS:
        raise CollectiveError(f"its steps move {transfers:,} chunks: at most {MOST_TRANSFERS:,}")


def _named(name: _StepName) -> str:
    return f"GPU {name[0]}, threadblock {name[1]}, step {name[2]}"


def _number(element: xml.Element, name: str, low: int, high: int) -> int:
    text = element.get(name, "")
    try:
        number = whole(text) if len(text) < 12 else high + 1
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise CollectiveError(f"<{element.tag} {name}={text[:20]!r}>: a whole number of {low} to {high} is needed")
    return number


def _step(element: xml.Element, send: int, receive: int, channel: int) -> _Instruction:
    kind = element.get("type", "")
    if kind not in _TYPES:
        raise CollectiveError(f"<step type={kind[:20]!r}> is unknown: allowed are {', '.join(sorted(_TYPES))}")
    if kind in _SENDS and send < 0 or kind in _RECEIVES and receive < 0:
        raise CollectiveError(f"<step type={kind!r}> in a threadblock without a peer for it")
    slots = []
    for buffer, offset in (("srcbuf", "srcoff"), ("dstbuf", "dstoff")):
        if kind != "nop" and element.get(buffer) not in ("i", "o", "s"):
            raise CollectiveError(f"<step {buffer}={str(element.get(buffer))[:20]!r}>: i, o or s is needed")
        slots.append((element.get(buffer, ""), 0 if kind == "nop" else _number(element, offset, 0, 1 << 20)))
    block = _number(element, "depid", -1, 1 << 16)
    after = (block, _number(element, "deps", 0, 1 << 16)) if block >= 0 else None
    count = 0 if kind == "nop" else _number(element, "cnt", 1, 1 << 16)
    return _Instruction(kind, *slots, count, after, send, receive, channel)


def array_ends(kind: str, ranks: int, chunks: int) -> dict[str, dict]:
    """Return start and goal; each rank owns equally many consecutive chunks of a scattered or gathered array."""
    if kind == "ar":
        start = {(rank, chunk): frozenset({rank}) for rank in range(ranks) for chunk in range(chunks)}
        return {"start": start, "goal": dict.fromkeys(start, all_ranks(ranks))}
    if kind == "a2a":
        part = chunks // ranks
        start = {(source, (source * ranks + destination) * part + one): frozenset({source})
                 for source in range(ranks) for destination in range(ranks) for one in range(part)}
        return {"start": start, "goal": {(chunk // part % ranks, chunk): contributions
                                         for (_, chunk), contributions in start.items()}}
    if kind == "rs":
        return {"start": {(rank, chunk): frozenset({rank}) for rank in range(ranks) for chunk in range(chunks)},
                "goal": {(chunk * ranks // chunks, chunk): all_ranks(ranks) for chunk in range(chunks)}}
    start = {(chunk * ranks // chunks, chunk): frozenset({chunk * ranks // chunks}) for chunk in range(chunks)}
    return {"start": start, "goal": {(rank, chunk): contributions for (_, chunk), contributions in start.items()
                                     for rank in range(ranks)}}


class SlotContent(NamedTuple):
    """A chunk, or a part of its sum, in a slot of a buffer."""

    chunk: int
    contributions: Contributions
    arrivals: tuple[int, ...] = ()  #: transfers that brought it, if nothing was added since


class Buffers:
    """Input, output and scratch of every GPU; operations read and write them in an order that their plan allows.

    Raises CollectiveError for an operation that reads an empty slot, or that uses a slot like another operation without
    an order between the two. Additions to a slot may be in any order.
    """

    def __init__(self, kind: str, ranks: int, chunks: int, in_place: bool, scratch: Mapping[int, int],
                 before: Mapping[_StepName, Iterable[_StepName]], name_of: Callable[[_StepName], str]) -> None:
        self.kind, self.part, self.in_place, self.scratch = kind, chunks // ranks, in_place, scratch
        self.name_of = name_of
        self.sizes = {"i": self.part if kind == "ag" else chunks, "o": self.part if kind == "rs" else chunks}
        try:
            self.order = list(TopologicalSorter(before).static_order())
        except CycleError as error:
            raise CollectiveError(f"{name_of(error.args[1][0])} waits for itself") from None
        self.transfers: list[Transfer] = []
        self.ends = array_ends(kind, ranks, chunks)
        self.contents = {self._slot(self._place(rank, chunk, "i")): SlotContent(chunk, contributions)
                         for (rank, chunk), contributions in self.ends["start"].items()}
        self.writes: dict[_Slot, list[_StepName]] = defaultdict(list)  #: the last write
        self.reads: dict[_Slot, list[_StepName]] = defaultdict(list)  #: since the last write
        self.additions: dict[_Slot, list[_StepName]] = defaultdict(list)
        self.before = before
        self.blocks = {block: index for index, block in enumerate(dict.fromkeys(name[:2] for name in self.order))}
        if len(self.order) * len(self.blocks) > _MOST_PASTS:
            raise CollectiveError(f"{len(self.order):,} steps times {len(self.blocks):,} threadblocks: at most "
                                  f"{_MOST_PASTS:,}")
        self.past = np.zeros(0)  #: last step of each threadblock that must precede the present operation

    def operations(self) -> Iterator[_StepName]:
        """Yield the operations in an order that the plan allows."""
        after = Counter(other for name in self.order for other in self.before[name])
        pasts: dict[_StepName, np.ndarray] = {}  # of operations with successors
        for name in self.order:
            self.past = np.full(len(self.blocks), -1, np.int32)
            for other in self.before[name]:
                np.maximum(self.past, pasts[other], out=self.past)
                after[other] -= 1
                if not after[other]:
                    del pasts[other]
            self.past[self.blocks[name[:2]]] = name[2]
            if after[name]:
                pasts[name] = self.past
            yield name

    def _place(self, rank: int, chunk: int, buffer: str) -> _Slot:
        """Return the slot of a chunk in a GPU's input or output."""
        if self.kind == "a2a":
            source, destination = divmod(chunk // self.part, self.sizes["i"] // self.part)
            return rank, buffer, (destination if buffer == "i" else source) * self.part + chunk % self.part
        return rank, buffer, chunk - rank * self.part if self.sizes[buffer] == self.part else chunk

    def _slot(self, slot: _Slot) -> _Slot:
        """Map a slot to the array that input and output share, if they are one."""
        rank, buffer, offset = slot
        array = "o" if self.kind == "ag" else "i"
        if not self.in_place or buffer in ("s", array):
            return slot
        return rank, array, offset + (rank * self.part if self.kind in ("ag", "rs") else 0)

    def _reach(self, name: _StepName, slot: _Slot, *others: dict[_Slot, list[_StepName]]) -> _Slot:
        """Map a slot with `_slot`, and check that the operation comes after the other operations there."""
        home = self._slot(slot)
        for other in (one for operations in others for one in operations[home]):
            if self.past[self.blocks[other[:2]]] < other[2]:
                raise CollectiveError(f"{self.name_of(name)} and {self.name_of(other)} use {shown_slot(slot)} in no "
                                      "order")
        return home

    def read(self, name: _StepName, slot: _Slot) -> SlotContent:
        home = self._reach(name, slot, self.writes, self.additions)
        self.reads[home].append(name)
        return self._content(name, slot)

    def write(self, name: _StepName, slot: _Slot, content: SlotContent) -> None:
        """Overwrite a slot."""
        rank, buffer, offset = slot
        if offset >= (size := self.scratch.get(rank, offset + 1) if buffer == "s" else self.sizes[buffer]):
            raise CollectiveError(f"{self.name_of(name)} writes {shown_slot(slot)}, but {buffer} has {size} chunks")
        home = self._reach(name, slot, self.writes, self.reads, self.additions)
        self.contents[home], self.writes[home], self.reads[home], self.additions[home] = content, [name], [], []

    def add(self, name: _StepName, slot: _Slot, content: SlotContent) -> SlotContent:
        """Add to a slot; several additions need no order."""
        home = self._reach(name, slot, self.writes, self.reads)
        self.additions[home].append(name)
        self.contents[home] = self.total(name, self._content(name, slot), content)
        return self.contents[home]

    def total(self, name: _StepName, *parts: SlotContent) -> SlotContent:
        """Return the sum of parts; transfers that brought a part of another GPU become additions."""
        chunk, contributions = parts[0].chunk, frozenset()
        for part in parts:
            if part.chunk != chunk:
                raise CollectiveError(f"{self.name_of(name)} adds chunk {part.chunk} to chunk {chunk}")
            if twice := contributions & part.contributions:
                raise CollectiveError(f"{self.name_of(name)} counts the contribution of GPU {min(twice)} twice")
            contributions |= part.contributions
            if name[0] not in part.contributions:
                for index in part.arrivals:
                    self.transfers[index] = self.transfers[index]._replace(op=Op.ADD)
        return SlotContent(chunk, contributions)

    def _content(self, name: _StepName, slot: _Slot) -> SlotContent:
        content = self.contents.get(self._slot(slot))
        if content is None:
            hint = " (output and input are two arrays)" if slot[1] == "o" and not self.in_place else ""
            raise CollectiveError(f"{self.name_of(name)} takes {shown_slot(slot)}, which is still empty{hint}")
        return content

    def program(self, ranks: int, chunks: int) -> Program:
        """Return the program, and check it and the slots of its results. Raises CollectiveError."""
        program = Program(ranks, chunks * (ranks if self.kind == "a2a" else 1), tuple(self.transfers), **self.ends)
        program.check()
        for (rank, chunk), contributions in self.ends["goal"].items():
            slot = self._place(rank, chunk, "o")
            result = self.contents.get(self._slot(slot), SlotContent(-1, frozenset()))
            if result[:2] != (chunk, contributions):
                content = "empty" if result.chunk < 0 else (
                    f"chunk {result.chunk} of GPUs {sorted(result.contributions)}")
                raise CollectiveError(f"{shown_slot(slot)} ends as {content}, but the result there is chunk {chunk} of "
                                      f"GPUs {sorted(contributions)}")
        return program


def shown_slot(slot: _Slot) -> str:
    return f"GPU {slot[0]}'s {slot[1]}[{slot[2]}]"


def msccl_text(kind: str, program: Program, name: str) -> str:
    """Return the program as MSCCL's XML.

    A GPU has a threadblock for each peer that it sends to, and for each peer that it receives from. Before a send that
    depends on several arrivals, steps of type nop wait for all arrivals but one.
    """
    place_of, ranks = _places(kind, program), program.ranks
    sends: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index in sorted(range(len(program.transfers)), key=lambda index: (program.levels[index], index)):
        sends[program.transfers[index].source, program.transfers[index].destination].append(index)
    algo = xml.Element("algo", name=name, proto="Simple", nchannels="1", ngpus=f"{ranks}", coll=KINDS[kind],
                       nchunksperloop=f"{program.chunks // (ranks if kind == 'a2a' else 1)}",
                       inplace=f"{int(kind != 'a2a')}", outofplace=f"{int(kind == 'a2a')}", minBytes="0", maxBytes="0")
    for rank in range(ranks):
        blocks = [key for key in sends if key[0] == rank] + [key for key in sends if key[1] == rank]
        block_number = {key: block for block, key in enumerate(blocks)}
        arrival = {index: (block_number[key], step) for key in blocks if key[1] == rank
                   for step, index in enumerate(sends[key])}
        steps = {key: list(_steps(program, sends[key], key[0] == rank, arrival)) for key in blocks}
        awaited_steps = {wait for lines in steps.values() for _, _, wait in lines if wait}
        places = {place_of(end, one.chunk) for one in program.transfers for end in one[1:3] if end == rank}
        kept_chunks = [chunk for owner, chunk in program.goal
                       if kind == "a2a" and owner == rank and (owner, chunk) in program.start]
        places |= {(buffer, place_of(rank, chunk)[1]) for chunk in kept_chunks for buffer in "io"}
        sizes = {f"{buffer}_chunks": f"{1 + max((offset for name, offset in places if name == buffer), default=-1)}"
                 for buffer in "ios"}
        gpu = xml.SubElement(algo, "gpu", id=f"{rank}", **sizes)
        for key in blocks:
            sending = key[0] == rank
            block = xml.SubElement(gpu, "tb", id=f"{block_number[key]}", send=f"{key[1] if sending else -1}",
                                   recv=f"{-1 if sending else key[0]}", chan="0")
            for step, (index, step_type, wait) in enumerate(steps[key]):
                buffer, offset = place_of(rank, program.transfers[index].chunk)
                xml.SubElement(block, "step", s=f"{step}", type=step_type, srcbuf=buffer, srcoff=f"{offset}",
                               dstbuf=buffer, dstoff=f"{offset}", cnt="1", depid=f"{wait[0] if wait else -1}",
                               deps=f"{wait[1] if wait else -1}",
                               hasdep=f"{int((block_number[key], step) in awaited_steps)}")
        if kept_chunks:
            block = xml.SubElement(gpu, "tb", id=f"{len(blocks)}", send="-1", recv="-1", chan="0")
        for step, chunk in enumerate(kept_chunks):
            offset = f"{place_of(rank, chunk)[1]}"
            xml.SubElement(block, "step", s=f"{step}", type="cpy", srcbuf="i", srcoff=offset, dstbuf="o", dstoff=offset,
                           cnt="1", depid="-1", deps="-1", hasdep="0")
    xml.indent(algo)
    return xml.tostring(algo, encoding="unicode") + "\n"


def _steps(program: Program, indices: Iterable[int], sending: bool, arrival: dict[int, tuple[int, int]]
           ) -> Iterator[tuple[int, str, tuple[int, int] | None]]:
    """Yield the steps of one threadblock: transfer, type, and the step that it waits for."""
    for index in indices:
        transfer = program.transfers[index]
        if not sending:
            yield index, "rrc" if transfer.op is Op.ADD else "r", None
            continue
        last_steps: dict[int, int] = {}  # of each receiving threadblock
        for arrival_index in transfer.after:
            block, step = arrival[arrival_index]
            last_steps[block] = max(step, last_steps.get(block, 0))
        *others, wait = sorted(last_steps.items()) or [None]
        yield from ((index, "nop", other) for other in others)
        yield index, "s", wait


def _places(kind: str, program: Program):
    """Return a function from rank and chunk to buffer and offset. Only an all-to-all has input and output arrays."""
    ranks = program.ranks
    if kind == "a2a":
        part = program.chunks // ranks**2

        def of_pair(rank: int, chunk: int) -> tuple[str, int]:
            pair, offset = divmod(chunk, part)
            source, destination = divmod(pair, ranks)
            if rank == source:
                return "i", destination * part + offset
            return ("o", source * part + offset) if rank == destination else ("s", chunk)
        return of_pair
    order = list(range(program.chunks))
    if kind != "ar":  # a rank's chunks are consecutive
        owner = {chunk: rank for rank, chunk in (program.goal if kind == "rs" else program.start)}
        order.sort(key=lambda chunk: (owner[chunk], chunk))
    index_of = {chunk: index for index, chunk in enumerate(order)}
    return lambda rank, chunk: ("o" if kind == "ag" else "i", index_of[chunk])

