"""MSCCL's XML: collectives of other tools as programs, and programs for them.

A GPU has threadblocks, each with at most one peer to send to and one to receive from; their steps run in order, and may
wait for a step of another threadblock. A sent chunk is matched with the receiver's next one of that pair and channel.
Read are the schedules of msccl-tools (all-reduce, reduce-scatter, all-gather, all-to-all); types s, r, rcs, rrc, rrs,
rrcs, re, cpy and nop.
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
_Slot = tuple[int, str, int]  # GPU, buffer, place


class _Instruction(NamedTuple):
    """One instruction as the file has it."""

    type: str
    source: tuple[str, int]  #: buffer and place
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
            said = {way: _number(root, name, 0, 1) for way, name in ((True, "inplace"), (False, "outofplace"))
                    if name in root.attrib}
            if len(said) == 1:  # it is for the other way, then, or not
                said |= {not way: 1 - value for way, value in said.items()}
            ways = [way for way, value in said.items() if value]
            if said and not ways:
                raise CollectiveError("inplace and outofplace are both 0")
            return read_each_way(lambda in_place: _MscclReader(root, in_place).program(), ways)
        except xml.ParseError as error:
            raise CollectiveError(f"{path.name} is not XML: {error}") from None
        except CollectiveError as error:
            raise CollectiveError(f"{path.name}: {error}") from None


def read_each_way(read: Callable[[bool], tuple[str, Program]], ways: Sequence[bool]) -> tuple[str, Program]:
    """Read a plan with input and output in one array (True), in two, or both; without any, as it is right."""
    if ways:
        return [read(way) for way in ways][0]
    try:
        return read(True)
    except CollectiveError:
        return read(False)


@dataclass
class _MscclReader:
    root: xml.Element
    in_place: bool
    steps: dict[_StepName, _Instruction] = field(default_factory=dict)
    scratch: dict[int, int] = field(default_factory=dict)  #: places of each GPU's, if the file says so

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
                for place, step in enumerate(steps):  # in the order of their numbers, not of lines
                    name = rank, number, _number(step, "s", 0, len(steps) - 1) if "s" in step.attrib else place
                    if name in self.steps:
                        raise CollectiveError(f"{_named(name)} is there twice")
                    self.steps[name] = _step(step, send, receive, _number(block, "chan", 0, 1 << 16))

    def _transfers(self, kind: str, ranks: int, chunks: int) -> Program:
        before, partner = self._predecessors()
        buffers = Buffers(kind, ranks, chunks, self.in_place, self.scratch, before, _named)
        transfers = buffers.transfers
        received: dict[_StepName, list[int]] = defaultdict(list)  # transfers that arrive in a step
        known: dict[_StepName, frozenset[int]] = {}  # and in all steps before it, of the same GPU
        carried: dict[_StepName, list[Held]] = {}  # what a sending step sends
        room = MOST_DEPENDENCIES
        for name in buffers.operations():
            step, rank = self.steps[name], name[0]
            known[name] = frozenset().union(*(known[one] | {*received[one]} for one in before[name] if one[0] == rank))
            if (room := room - len(known[name])) < 0:
                raise CollectiveError(f"its steps come after more than {MOST_DEPENDENCIES:,} transfers in all")
            carried[name] = []
            for offset in range(step.count):
                source, target = ((rank, buffer, place + offset) for buffer, place in (step.source, step.target))
                if step.type not in _RECEIVES:
                    held = buffers.read(name, source)
                else:
                    sender, op = partner[name], Op.ADD if step.type in _ADDS else Op.COPY
                    received[name].append(len(transfers))
                    held = carried[sender][offset]._replace(came=() if op is Op.ADD else (len(transfers),))
                    transfers.append(Transfer(held.chunk, sender[0], rank, op,
                                              tuple(sorted(known[sender] | {*received[sender]}))))
                if step.type in ("rrc", "rrcs") and source == target:
                    held = buffers.add(name, target, held)
                elif step.type in _ADDS or step.type == "re":
                    held = buffers.total(name, buffers.read(name, target if step.type == "re" else source), held)
                if step.type in ("r", "rcs", "cpy", "re") or step.type in ("rrc", "rrcs") and source != target:
                    buffers.write(name, target, held)
                carried[name].append(held)
        return buffers.program(ranks, chunks)

    def _predecessors(self) -> tuple[dict[_StepName, set[_StepName]], dict[_StepName, _StepName]]:
        """Return the steps before each one, and the senders by receiver.

        Before a step are those of its threadblock, those that it names, and the step whose data it receives.
        """
        before: dict[_StepName, set[_StepName]] = {name: set() for name in self.steps}
        sent: dict[tuple[int, int, int], deque[_StepName]] = defaultdict(deque)
        for name, step in sorted(self.steps.items()):
            rank, block, place = name
            if place:
                before[name].add((rank, block, place - 1))
            if step.after is not None:
                if (rank, *step.after) not in self.steps:
                    raise CollectiveError(f"{_named(name)} waits for threadblock {step.after[0]}, step "
                                          f"{step.after[1]}, which there is not")
                before[name].add((rank, *step.after))
            if step.type in _SENDS:
                sent[rank, step.send, step.channel].append(name)
        partner = {}
        for name, step in sorted(self.steps.items()):
            if step.type in _RECEIVES:
                waiting = sent[step.receive, name[0], step.channel]
                if not waiting:
                    raise CollectiveError(f"{_named(name)} receives from GPU {step.receive} what it does not send")
                partner[name] = waiting.popleft()
                if self.steps[partner[name]].count != step.count:
                    raise CollectiveError(f"{_named(name)} receives {step.count} chunks of "
                                          f"{self.steps[partner[name]].count} that are sent")
                before[name].add(partner[name])
        for (rank, to, _), left in sent.items():
            if left:
                raise CollectiveError(f"{_named(left[0])} sends to GPU {to} what it does not receive from {rank}")
        return before, partner


def check_size(ranks: int, chunks: int, transfers: int) -> None:
    """Raise CollectiveError for a plan that is larger than any that is needed."""
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
    places = []
    for buffer, place in (("srcbuf", "srcoff"), ("dstbuf", "dstoff")):
        if kind != "nop" and element.get(buffer) not in ("i", "o", "s"):
            raise CollectiveError(f"<step {buffer}={str(element.get(buffer))[:20]!r}>: i, o or s is needed")
        places.append((element.get(buffer, ""), 0 if kind == "nop" else _number(element, place, 0, 1 << 20)))
    block = _number(element, "depid", -1, 1 << 16)
    after = (block, _number(element, "deps", 0, 1 << 16)) if block >= 0 else None
    return _Instruction(kind, *places, 0 if kind == "nop" else _number(element, "cnt", 1, 1 << 16), after, send,
                        receive,
                 channel)


def array_ends(kind: str, ranks: int, chunks: int) -> dict[str, dict]:
    """Return start and goal; of a scattered or gathered array every rank owns equally many chunks in a row."""
    if kind == "ar":
        start = {(rank, chunk): frozenset({rank}) for rank in range(ranks) for chunk in range(chunks)}
        return {"start": start, "goal": dict.fromkeys(start, all_ranks(ranks))}
    if kind == "a2a":
        part = chunks // ranks
        made = {(source, (source * ranks + to) * part + one): frozenset({source})
                for source in range(ranks) for to in range(ranks) for one in range(part)}
        return {"start": made, "goal": {(chunk // part % ranks, chunk): by for (_, chunk), by in made.items()}}
    if kind == "rs":
        return {"start": {(rank, chunk): frozenset({rank}) for rank in range(ranks) for chunk in range(chunks)},
                "goal": {(chunk * ranks // chunks, chunk): all_ranks(ranks) for chunk in range(chunks)}}
    made = {(chunk * ranks // chunks, chunk): frozenset({chunk * ranks // chunks}) for chunk in range(chunks)}
    return {"start": made, "goal": {(rank, chunk): by for (_, chunk), by in made.items() for rank in range(ranks)}}


class Held(NamedTuple):
    """A chunk, or a part of its sum, in a place of a buffer."""

    chunk: int
    by: Contributions
    came: tuple[int, ...] = ()  #: transfers that brought it, if nothing was added since


class Buffers:
    """Input, output and scratch of every GPU, as operations read and write them in an order that their plan allows.

    Raises CollectiveError for an operation that takes what is not there, or that meets another one in a place without
    an order between them. What arrives to be added may do so in any order.
    """

    def __init__(self, kind: str, ranks: int, chunks: int, in_place: bool, scratch: Mapping[int, int],
                 before: Mapping[_StepName, Iterable[_StepName]], named: Callable[[_StepName], str]) -> None:
        self.kind, self.part, self.in_place, self.scratch, self.named = kind, chunks // ranks, in_place, scratch, named
        self.sizes = {"i": self.part if kind == "ag" else chunks, "o": self.part if kind == "rs" else chunks}
        try:
            self.order = list(TopologicalSorter(before).static_order())
        except CycleError as error:
            raise CollectiveError(f"{named(error.args[1][0])} waits for itself") from None
        self.transfers: list[Transfer] = []
        self.ends = array_ends(kind, ranks, chunks)
        self.held = {self._slot(self._place(rank, chunk, "i")): Held(chunk, by)
                     for (rank, chunk), by in self.ends["start"].items()}
        self.writes: dict[_Slot, list[_StepName]] = defaultdict(list)  #: the last one
        self.reads: dict[_Slot, list[_StepName]] = defaultdict(list)  #: since then
        self.additions: dict[_Slot, list[_StepName]] = defaultdict(list)
        self.before = before
        self.blocks = {block: at for at, block in enumerate(dict.fromkeys(name[:2] for name in self.order))}
        if len(self.order) * len(self.blocks) > _MOST_PASTS:
            raise CollectiveError(f"{len(self.order):,} steps times {len(self.blocks):,} threadblocks: at most "
                                  f"{_MOST_PASTS:,}")
        self.past = np.zeros(0)  #: how far each threadblock is, at least, after the present operation

    def operations(self) -> Iterator[_StepName]:
        """Go through the operations in an order that the plan allows."""
        after = Counter(other for name in self.order for other in self.before[name])
        pasts: dict[_StepName, np.ndarray] = {}  # of operations that others come after
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
        """Return where a chunk of the input or output of a GPU is."""
        if self.kind == "a2a":
            source, to = divmod(chunk // self.part, self.sizes["i"] // self.part)
            return rank, buffer, (to if buffer == "i" else source) * self.part + chunk % self.part
        return rank, buffer, chunk - rank * self.part if self.sizes[buffer] == self.part else chunk

    def _slot(self, slot: _Slot) -> _Slot:
        """Return a slot by one name where input and output are one array."""
        rank, buffer, place = slot
        whole_array = "o" if self.kind == "ag" else "i"
        if not self.in_place or buffer in ("s", whole_array):
            return slot
        return rank, whole_array, place + (rank * self.part if self.kind in ("ag", "rs") else 0)

    def _reach(self, name: _StepName, slot: _Slot, *others: dict[_Slot, list[_StepName]]) -> _Slot:
        """Return a slot's one name; the operation must come after the others there."""
        at = self._slot(slot)
        for other in (one for some in others for one in some[at]):
            if self.past[self.blocks[other[:2]]] < other[2]:
                raise CollectiveError(f"{self.named(name)} and {self.named(other)} use {shown_slot(slot)} in no order")
        return at

    def read(self, name: _StepName, slot: _Slot) -> Held:
        """Return what is in a slot."""
        at = self._reach(name, slot, self.writes, self.additions)
        self.reads[at].append(name)
        return self._there(name, slot)

    def write(self, name: _StepName, slot: _Slot, held: Held) -> None:
        """Put it into a slot, over what was there."""
        rank, buffer, place = slot
        if place >= (size := self.scratch.get(rank, place + 1) if buffer == "s" else self.sizes[buffer]):
            raise CollectiveError(f"{self.named(name)} writes {shown_slot(slot)}, but {buffer} has {size} chunks")
        at = self._reach(name, slot, self.writes, self.reads, self.additions)
        self.held[at], self.writes[at], self.reads[at], self.additions[at] = held, [name], [], []

    def add(self, name: _StepName, slot: _Slot, held: Held) -> Held:
        """Add it to what is in a slot; others may at any time."""
        at = self._reach(name, slot, self.writes, self.reads)
        self.additions[at].append(name)
        self.held[at] = self.total(name, self._there(name, slot), held)
        return self.held[at]

    def total(self, name: _StepName, *parts: Held) -> Held:
        """Return the sum; transfers that brought a part came to be added, not to take a chunk's place."""
        chunk, by = parts[0].chunk, frozenset()
        for part in parts:
            if part.chunk != chunk:
                raise CollectiveError(f"{self.named(name)} adds chunk {part.chunk} to chunk {chunk}")
            if twice := by & part.by:
                raise CollectiveError(f"{self.named(name)} counts the contribution of GPU {min(twice)} twice")
            by |= part.by
            if name[0] not in part.by:
                for index in part.came:
                    self.transfers[index] = self.transfers[index]._replace(op=Op.ADD)
        return Held(chunk, by)

    def _there(self, name: _StepName, slot: _Slot) -> Held:
        found = self.held.get(self._slot(slot))
        if found is None:
            apart = " (output and input are two arrays)" if slot[1] == "o" and not self.in_place else ""
            raise CollectiveError(f"{self.named(name)} takes {shown_slot(slot)}, where nothing is yet{apart}")
        return found

    def program(self, ranks: int, chunks: int) -> Program:
        """Return the transfers, checked, as are the places of the results. Raises CollectiveError."""
        found = Program(ranks, chunks * (ranks if self.kind == "a2a" else 1), tuple(self.transfers), **self.ends)
        found.check()
        for (rank, chunk), by in self.ends["goal"].items():
            slot = self._place(rank, chunk, "o")
            there = self.held.get(self._slot(slot), Held(-1, frozenset()))
            if there[:2] != (chunk, by):
                ends = "empty" if there.chunk < 0 else f"chunk {there.chunk} of GPUs {sorted(there.by)}"
                raise CollectiveError(f"{shown_slot(slot)} ends as {ends}, but the result there is chunk {chunk} of "
                                      f"GPUs {sorted(by)}")
        return found


def shown_slot(slot: _Slot) -> str:
    return f"GPU {slot[0]}'s {slot[1]}[{slot[2]}]"


def msccl_text(kind: str, program: Program, name: str) -> str:
    """Return the program as MSCCL's XML.

    It has a threadblock for each peer that a GPU sends to, and for each it receives from. Where several arrivals are
    waited for, steps of type nop wait for all but one.
    """
    place, ranks = _places(kind, program), program.ranks
    sends: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index in sorted(range(len(program.transfers)), key=lambda index: (program.levels[index], index)):
        sends[program.transfers[index].source, program.transfers[index].destination].append(index)
    algo = xml.Element("algo", name=name, proto="Simple", nchannels="1", ngpus=f"{ranks}", coll=KINDS[kind],
                       nchunksperloop=f"{program.chunks // (ranks if kind == 'a2a' else 1)}",
                       inplace=f"{int(kind != 'a2a')}", outofplace=f"{int(kind == 'a2a')}", minBytes="0", maxBytes="0")
    for rank in range(ranks):
        blocks = [key for key in sends if key[0] == rank] + [key for key in sends if key[1] == rank]
        number = {key: block for block, key in enumerate(blocks)}
        arrival = {index: (number[key], step) for key in blocks if key[1] == rank
                   for step, index in enumerate(sends[key])}
        steps = {key: list(_steps(program, sends[key], key[0] == rank, arrival)) for key in blocks}
        awaited = {wait for lines in steps.values() for _, _, wait in lines if wait}
        used = {place(end, one.chunk) for one in program.transfers for end in one[1:3] if end == rank}
        own = [chunk for at, chunk in program.goal if kind == "a2a" and at == rank and (at, chunk) in program.start]
        used |= {(buffer, place(rank, chunk)[1]) for chunk in own for buffer in "io"}
        sizes = {f"{buffer}_chunks": f"{1 + max((at for which, at in used if which == buffer), default=-1)}"
                 for buffer in "ios"}
        gpu = xml.SubElement(algo, "gpu", id=f"{rank}", **sizes)
        for key in blocks:
            sending = key[0] == rank
            block = xml.SubElement(gpu, "tb", id=f"{number[key]}", send=f"{key[1] if sending else -1}",
                                   recv=f"{-1 if sending else key[0]}", chan="0")
            for step, (index, what, wait) in enumerate(steps[key]):
                buffer, at = place(rank, program.transfers[index].chunk)
                xml.SubElement(block, "step", s=f"{step}", type=what, srcbuf=buffer, srcoff=f"{at}", dstbuf=buffer,
                               dstoff=f"{at}", cnt="1", depid=f"{wait[0] if wait else -1}",
                               deps=f"{wait[1] if wait else -1}", hasdep=f"{int((number[key], step) in awaited)}")
        if own:  # what a GPU keeps
            block = xml.SubElement(gpu, "tb", id=f"{len(blocks)}", send="-1", recv="-1", chan="0")
        for step, chunk in enumerate(own):
            at = f"{place(rank, chunk)[1]}"
            xml.SubElement(block, "step", s=f"{step}", type="cpy", srcbuf="i", srcoff=at, dstbuf="o", dstoff=at,
                           cnt="1", depid="-1", deps="-1", hasdep="0")
    xml.indent(algo)
    return xml.tostring(algo, encoding="unicode") + "\n"


def _steps(program: Program, indices: Iterable[int], sending: bool, arrival: dict[int, tuple[int, int]]
           ) -> Iterator[tuple[int, str, tuple[int, int] | None]]:
    """Give the steps of one threadblock: transfer, type, and the step that it waits for."""
    for index in indices:
        one = program.transfers[index]
        if not sending:
            yield index, "rrc" if one.op is Op.ADD else "r", None
            continue
        last: dict[int, int] = {}  # of each receiving threadblock only the last one matters
        for before in one.after:
            block, step = arrival[before]
            last[block] = max(step, last.get(block, 0))
        *others, wait = sorted(last.items()) or [None]
        yield from ((index, "nop", other) for other in others)
        yield index, "s", wait


def _places(kind: str, program: Program):
    """Return buffer and place of a chunk at a rank. Arrays are in place, but for an all-to-all's input and output."""
    ranks = program.ranks
    if kind == "a2a":
        part = program.chunks // ranks**2

        def of_pair(rank: int, chunk: int) -> tuple[str, int]:
            pair, one = divmod(chunk, part)
            source, to = divmod(pair, ranks)
            return ("i", to * part + one) if rank == source else ("o", source * part + one) if rank == to else (
                "s", chunk)
        return of_pair
    order = list(range(program.chunks))
    if kind != "ar":  # a rank's chunks are in a row
        owner = {chunk: rank for rank, chunk in (program.goal if kind == "rs" else program.start)}
        order.sort(key=lambda chunk: (owner[chunk], chunk))
    place = {chunk: at for at, chunk in enumerate(order)}
    return lambda rank, chunk: ("o" if kind == "ag" else "i", place[chunk])

