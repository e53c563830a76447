"""MSCCL's XML: collectives of other tools as programs, and programs for them.

A GPU has threadblocks, each with at most one peer to send to and one to receive from; their steps run in order, and may
wait for a step of another threadblock. A sent chunk is matched with the receiver's next one of that pair and channel.
Read are the schedules of msccl-tools (all-reduce, reduce-scatter, all-gather, all-to-all); types s, r, rcs, rrc, rrs,
rrcs, re, cpy and nop.
"""

import xml.etree.ElementTree as xml
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

from ..bounded import LARGEST_TEXT, MOST_DEPENDENCIES, MOST_SLOTS, MOST_TRANSFERS, read_bounded, reading
from ..numerals import whole
from .program import CollectiveError, Op, Program, Transfer, all_ranks

#: Names in the files.
KINDS = {"ar": "allreduce", "rs": "reduce_scatter", "ag": "allgather", "a2a": "alltoall"}
_RECEIVES = {"r", "rcs", "rrc", "rrs", "rrcs"}
_SENDS = {"s", "rcs", "rrs", "rrcs"}
_ADDS = {"rrc", "rrs", "rrcs"}
_TYPES = {*_RECEIVES, *_SENDS, "re", "cpy", "nop"}
_LARGEST = 256  #: GPUs

_StepName = tuple[int, int, int]  # GPU, threadblock, step
_Slot = tuple[int, str, int]  # GPU, buffer, place


class _Step(NamedTuple):
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
            kind, program = _Reader(xml.fromstring(text)).program()
            program.check()
        except xml.ParseError as error:
            raise CollectiveError(f"{path.name} is not XML: {error}") from None
        except CollectiveError as error:
            raise CollectiveError(f"{path.name}: {error}") from None
        return kind, program


@dataclass
class _Reader:
    root: xml.Element
    steps: dict[_StepName, _Step] = field(default_factory=dict)

    def program(self) -> tuple[str, Program]:
        root = self.root
        if root.tag != "algo":
            raise CollectiveError(f"<{root.tag[:20]}> is no <algo> of MSCCL")
        names = {name: kind for kind, name in KINDS.items()}
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
            for block in gpu.iter("tb"):
                number = _number(block, "id", 0, 1 << 16)
                send, receive = (_number(block, name, -1, ranks - 1) for name in ("send", "recv"))
                for place, step in enumerate(block.iter("step")):
                    self.steps[rank, number, place] = _step(step, send, receive, _number(block, "chan", 0, 1 << 16))

    def _transfers(self, kind: str, ranks: int, chunks: int) -> Program:
        before, partner = self._predecessors()
        held = dict(initial_slots(kind, ranks, chunks))  # chunk in each slot
        transfers: list[Transfer] = []
        arrived: dict[_Slot, list[int]] = defaultdict(list)  # transfers that made what a slot holds, if scratch
        received: dict[_StepName, list[int]] = defaultdict(list)  # transfers that arrive in a step
        known: dict[_StepName, frozenset[int]] = {}  # and in all steps before it, of the same GPU
        try:
            order = list(TopologicalSorter(before).static_order())
        except CycleError as error:
            raise CollectiveError(f"step {error.args[1][0]} (GPU, threadblock, step) waits for itself") from None
        carried: dict[_StepName, list[int]] = {}  # chunks that a sending step sends
        room = MOST_DEPENDENCIES
        for name in order:
            step, rank = self.steps[name], name[0]
            known[name] = frozenset().union(*(known[one] | {*received[one]} for one in before[name] if one[0] == rank))
            if (room := room - len(known[name])) < 0:
                raise CollectiveError(f"its steps come after more than {MOST_DEPENDENCIES:,} transfers in all")
            if step.type in _RECEIVES:
                sender = partner[name]
                for offset, chunk in enumerate(carried[sender]):
                    op = Op.ADD if step.type in _ADDS else Op.COPY
                    after = known[sender] | {*received[sender]}
                    slot = rank, step.target[0], step.target[1] + offset
                    if op is Op.ADD and held.get((rank, step.source[0], step.source[1] + offset), chunk) != chunk:
                        raise CollectiveError(f"{_named(name)} adds chunk {chunk} to another one")
                    received[name].append(len(transfers))
                    transfers.append(Transfer(chunk, sender[0], rank, op, tuple(sorted(after))))
                    if step.type != "rrs":
                        held[slot] = chunk
                        arrived[slot] = [received[name][-1]] if op is Op.COPY else arrived[slot]
                carried[name] = carried[sender]
            elif step.type in _SENDS:
                carried[name] = [self._chunk(held, rank, step.source, offset, name) for offset in range(step.count)]
            elif step.type in ("re", "cpy"):
                for offset in range(step.count):
                    source, target = ((rank, buffer, place + offset) for buffer, place in (step.source, step.target))
                    chunk = self._chunk(held, rank, step.source, offset, name)
                    if step.type == "re":
                        for index in arrived[source]:  # it came to be added
                            transfers[index] = transfers[index]._replace(op=Op.ADD)
                    held[target] = chunk
        return Program(ranks, chunks * (ranks if kind == "a2a" else 1), tuple(transfers),
                       **array_ends(kind, ranks, chunks))

    def _chunk(self, held: dict[_Slot, int], rank: int, source: tuple[str, int], offset: int, name: _StepName) -> int:
        slot = rank, source[0], source[1] + offset
        if slot not in held:
            raise CollectiveError(f"{_named(name)} takes {slot[1]}[{slot[2]}], where nothing is yet")
        return held[slot]

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


def _step(element: xml.Element, send: int, receive: int, channel: int) -> _Step:
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
    return _Step(kind, *places, 0 if kind == "nop" else _number(element, "cnt", 1, 1 << 16), after, send, receive,
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


def initial_slots(kind: str, ranks: int, chunks: int) -> Iterator[tuple[_Slot, int]]:
    """Yield which chunk is in which slot at the start: of the input, and of the output where that is the input."""
    part = chunks // ranks
    for rank in range(ranks):
        for place in range(chunks):
            if kind == "a2a":
                yield (rank, "i", place), rank * chunks + place
            elif kind in ("ar", "rs"):
                yield (rank, "i", place), place
                if kind == "ar":
                    yield (rank, "o", place), place
            elif place // part == rank:
                yield (rank, "i", place % part), place
                yield (rank, "o", place), place


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

