"""MSCCL++'s JSON: reads execution plans as programs.

A GPU has threadblocks whose operations run in order. A signal over a channel is matched with the peer's next wait, and
a release of a semaphore with an acquisition; an operation that reads packets waits for the operation that writes them.
A move between GPUs, in either direction, is a transfer; a reduced part counts as added where it arrives. The reader
takes memory and port channels, with or without packets, but no switch channels and no groups of threadblocks.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from t3sim.base.bounded import LARGEST_TEXT, MOST_DEPENDENCIES, read_bounded, reading
from t3sim.collectives.msccl import KINDS, Buffers, check_size, read_each_way, shown_slot
from t3sim.collectives.program import CollectiveError, Op, Program, Transfer

_SIGNALS, _WAITS = {"signal", "rlxsignal", "pws", "pwsf"}, {"wait", "rlxwait"}
_MOVES = {"put", "pws", "pwsf", "get", "copy", "ppkt", "rppkt", "cpkt", "upkt"}
_REDUCTIONS = {"re", "res", "rre", "rres", "repkt", "respkt", "recpkt", "recspkt"}
_PACKETS_WRITTEN = {"ppkt", "rppkt", "cpkt", "respkt", "recpkt", "recspkt"}
_PACKETS_READ = {"rppkt", "upkt", "repkt", "respkt", "recpkt", "recspkt"}
_NOT_READ = {"glres", "gstore", "gstorepkt"}
_TYPES = {*_SIGNALS, *_WAITS, *_MOVES, *_REDUCTIONS, "nop", "flush", "barrier", "sem_acquire", "sem_release",
          "pipeline"}

_Number = Annotated[int, Field(ge=0, le=1 << 20)]
_Name = tuple[int, int, int]  # GPU, threadblock, index
_Slot = tuple[int, str, int]  # GPU, buffer, chunk


class _Buffer(BaseModel):
    type: Literal["i", "o", "s"] | None = None
    buffer_id: _Number | None = None  #: of the threadblock's remote buffers
    index: _Number
    size: Annotated[int, Field(ge=1, le=1 << 16)]


class _Operation(BaseModel):
    name: str
    src_buff: list[_Buffer] = []
    dst_buff: list[_Buffer] = []
    channel_ids: list[_Number] = []
    channel_type: str = "memory"
    semaphore_ids: list[_Number] = []
    barrier_id: _Number = 0
    ops: list["_Operation"] = []
    tbg_info: Any = None


class _ChannelIds(BaseModel):
    channel_type: str
    channel_ids: list[_Number]


class _BufferIds(BaseModel):
    access_channel_type: str
    remote_buffer_ids: list[_Number]


class _Block(BaseModel):
    id: _Number
    ops: list[_Operation]
    channels: list[_ChannelIds] = []
    remote_buffer_refs: list[_BufferIds] = []


class _Channels(BaseModel):
    channel_type: str
    connected_to: list[_Number] = []


class _RemoteBuffer(BaseModel):
    rank: _Number
    type: Literal["i", "o", "s"]


class _Semaphore(BaseModel):
    init_value: _Number


class _GpuPlan(BaseModel):
    id: _Number
    input_chunks: _Number
    output_chunks: _Number
    scratch_chunks: _Number | None = None
    threadblocks: list[_Block]
    channels: list[_Channels] = []
    remote_buffers: list[_RemoteBuffer] = []
    semaphores: list[_Semaphore] = []


class _Plan(BaseModel):
    collective: str
    inplace: bool | None = None
    gpus: Annotated[list[_GpuPlan], Field(min_length=2, max_length=256)]


def read_mscclpp(path: Path) -> tuple[str, Program]:
    """Return the collective's kind (a key of `KINDS`) and its program, checked. Raises CollectiveError, OSError."""
    with reading(str(path), "a plan", CollectiveError):
        try:
            plan = _Plan.model_validate_json(read_bounded(path, LARGEST_TEXT))
            return read_each_way(lambda in_place: _MscclppReader(plan, in_place).program(),
                                 [] if plan.inplace is None else [plan.inplace])
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            key = ".".join(map(str, fault["loc"]))[:100] or "the file"
            raise CollectiveError(f"{path.name}: {key}: {fault['msg'][0].lower()}{fault['msg'][1:100]}") from None
        except CollectiveError as error:
            raise CollectiveError(f"{path.name}: {error}") from None


@dataclass
class _MscclppReader:
    plan: _Plan
    in_place: bool
    operations: dict[_Name, _Operation] = field(default_factory=dict)
    before: dict[_Name, set[_Name]] = field(default_factory=dict)

    def program(self) -> tuple[str, Program]:
        plan, ranks = self.plan, len(self.plan.gpus)
        names = {name.replace("_", ""): kind for kind, name in KINDS.items()}
        kind = names.get(plan.collective.replace("_", "").lower())
        if kind is None:
            raise CollectiveError(f"collective = {plan.collective[:20]!r} is unknown: allowed are {', '.join(names)}")
        if [gpu.id for gpu in plan.gpus] != list(range(ranks)):
            raise CollectiveError(f"gpus have ids other than 0 to {ranks - 1} in this order")
        chunks = plan.gpus[0].output_chunks if kind == "ag" else plan.gpus[0].input_chunks
        if not chunks or kind != "ar" and chunks % ranks:
            raise CollectiveError(f"{chunks} chunks cannot be shared by {ranks} GPUs")
        self._read_operations()
        check_size(ranks, chunks * (ranks if kind == "a2a" else 1), sum(
            buffer.size for one in self.operations.values() for buffer in (*one.src_buff, *one.dst_buff)))
        self._join_signals()
        self._join_within_gpus()
        self._join_packets()
        buffers = Buffers(kind, ranks, chunks, self.in_place, {
            gpu.id: gpu.scratch_chunks for gpu in plan.gpus if gpu.scratch_chunks is not None}, self.before, _named)
        transfers_before: dict[_Name, frozenset[int]] = {}  # of each operation and of those before it
        dependencies_left = MOST_DEPENDENCIES
        for name in buffers.operations():
            earlier = frozenset().union(*(transfers_before[one] for one in self.before[name]))
            if (dependencies_left := dependencies_left - len(earlier)) < 0:
                raise CollectiveError(f"its operations depend on more than {MOST_DEPENDENCIES:,} transfers in total")
            first = len(buffers.transfers)
            self._move(name, earlier, buffers)
            transfers_before[name] = earlier | frozenset(range(first, len(buffers.transfers)))
        return kind, buffers.program(ranks, chunks)

    def _read_operations(self) -> None:
        for gpu in self.plan.gpus:
            for block in gpu.threadblocks:
                operations = [one for operation in block.ops
                              for one in ([operation, *operation.ops] if operation.name == "pipeline" else [operation])]
                for index, operation in enumerate(operations):
                    name = gpu.id, block.id, index
                    if operation.name in _NOT_READ or operation.channel_type == "switch":
                        raise CollectiveError(f"{_named(name)}: {operation.name[:20]} is for switch channels, which "
                                              "are not read")
                    if operation.name not in _TYPES:
                        raise CollectiveError(f"{_named(name)}: {operation.name[:20]!r} is not a supported operation: "
                                              f"{', '.join(sorted(_TYPES))}")
                    if operation.tbg_info is not None:
                        raise CollectiveError(f"{_named(name)}: groups of threadblocks are not supported")
                    self.operations[name] = operation
                    self.before[name] = {(gpu.id, block.id, index - 1)} if index else set()

    def _block(self, name: _Name) -> _Block:
        return next(block for block in self.plan.gpus[name[0]].threadblocks if block.id == name[1])

    def _channel(self, name: _Name, channel_type: str, index: int) -> tuple[int, int]:
        """Return a threadblock's channel as (peer, number of earlier channels of the GPU to that peer)."""
        channels = [number for one in self._block(name).channels if one.channel_type == channel_type
                    for number in one.channel_ids]
        peers = [peer for one in self.plan.gpus[name[0]].channels if one.channel_type == channel_type
                 for peer in one.connected_to]
        if index >= len(channels) or channels[index] >= len(peers) or peers[channels[index]] >= len(self.plan.gpus):
            raise CollectiveError(f"{_named(name)} names {channel_type[:20]} channel {index}, which does not exist")
        return peers[channels[index]], peers[:channels[index]].count(peers[channels[index]])

    def _join_signals(self) -> None:
        """Put the n-th wait of each channel after its n-th signal."""
        signals: dict[tuple, list[_Name]] = defaultdict(list)
        waits: dict[tuple, list[_Name]] = defaultdict(list)
        for name, operation in sorted(self.operations.items()):
            if operation.name in _SIGNALS | _WAITS:
                for index in operation.channel_ids:
                    peer, channel_number = self._channel(name, operation.channel_type, index)
                    kind = operation.channel_type, channel_number
                    if operation.name in _SIGNALS:
                        signals[name[0], peer, kind].append(name)
                    else:
                        waits[peer, name[0], kind].append(name)
        for key, channel_waits in waits.items():
            if len(channel_waits) > len(signals[key]):
                raise CollectiveError(f"{_named(channel_waits[len(signals[key])])} waits for a signal that GPU "
                                      f"{key[0]} does not send")
            for wait, signal in zip(channel_waits, signals[key]):
                self.before[wait].add(signal)

    def _join_within_gpus(self) -> None:
        """Order operations within a GPU: acquisitions after releases, barriers after the operations before them.

        Semaphores count from their initial value; a barrier comes after earlier operations of all its threadblocks.
        """
        releases: dict[tuple[int, int], list[_Name]] = defaultdict(list)
        acquisitions: dict[tuple[int, int], list[_Name]] = defaultdict(list)
        barriers: dict[tuple[int, int, int], list[_Name]] = defaultdict(list)
        barriers_passed: dict[tuple[int, int, int], int] = defaultdict(int)
        for name, operation in sorted(self.operations.items()):
            if operation.name in ("sem_acquire", "sem_release"):
                for number in operation.semaphore_ids:
                    (acquisitions if operation.name == "sem_acquire" else releases)[name[0], number].append(name)
            if operation.name == "barrier":
                barrier = name[0], operation.barrier_id, name[1]
                barriers[name[0], operation.barrier_id, barriers_passed[barrier]].append(name)
                barriers_passed[barrier] += 1
        for (rank, number), names in acquisitions.items():
            semaphores = self.plan.gpus[rank].semaphores
            if number >= len(semaphores):
                raise CollectiveError(f"{_named(names[0])} names semaphore {number}, which does not exist")
            blocked = names[semaphores[number].init_value:]
            if len(blocked) > len(releases[rank, number]):
                raise CollectiveError(f"{_named(blocked[-1])} acquires semaphore {number}, which is never released")
            for acquisition, release in zip(blocked, releases[rank, number]):
                self.before[acquisition].add(release)
        for group in barriers.values():
            predecessors = set().union(*(self.before[one] for one in group))
            for one in group:
                self.before[one] |= predecessors

    def _join_packets(self) -> None:
        """Put operations that read packets after those that write them; a slot may be written only once."""
        writer_of: dict[_Slot, _Name] = {}
        for name, operation in self.operations.items():
            if operation.name in _PACKETS_WRITTEN:
                for buffer in operation.dst_buff:
                    for slot in self._slots(name, buffer):
                        if slot[1] == "s" and writer_of.setdefault(slot, name) != name:
                            raise CollectiveError(f"{_named(name)} writes packets to {shown_slot(slot)}, as "
                                                  f"{_named(writer_of[slot])} does")
        for name, operation in self.operations.items():
            if operation.name in _PACKETS_READ:
                self.before[name] |= {writer_of[slot] for buffer in operation.src_buff
                                      for slot in self._slots(name, buffer) if slot in writer_of} - {name}

    def _slots(self, name: _Name, buffer: _Buffer) -> Iterator[_Slot]:
        rank, buffer_type = name[0], buffer.type
        if buffer.buffer_id is not None:
            channel_type = self.operations[name].channel_type
            ids = [number for one in self._block(name).remote_buffer_refs if one.access_channel_type == channel_type
                   for number in one.remote_buffer_ids]
            remote = self.plan.gpus[rank].remote_buffers
            if buffer.buffer_id >= len(ids) or ids[buffer.buffer_id] >= len(remote):
                raise CollectiveError(f"{_named(name)} names remote buffer {buffer.buffer_id}, which does not exist")
            rank, buffer_type = remote[ids[buffer.buffer_id]].rank, remote[ids[buffer.buffer_id]].type
        if buffer_type is None:
            raise CollectiveError(f"{_named(name)} names a buffer without type or buffer_id")
        return ((rank, buffer_type, buffer.index + offset) for offset in range(buffer.size))

    def _move(self, name: _Name, transfers_before: frozenset[int], buffers: Buffers) -> None:
        operation = self.operations[name]
        if operation.name not in _MOVES | _REDUCTIONS:
            return
        sources, targets = ([list(self._slots(name, buffer)) for buffer in side]
                            for side in (operation.src_buff, operation.dst_buff))
        if not sources or not targets or len({len(slots) for slots in (*sources, *targets)}) != 1:
            raise CollectiveError(f"{_named(name)}: {operation.name} needs sources and targets of one size")
        if operation.name in _REDUCTIONS:
            moves = [([slots[offset] for slots in sources], [slots[offset] for slots in targets])
                     for offset in range(len(sources[0]))]
        elif len(sources) not in (1, len(targets)):
            raise CollectiveError(f"{_named(name)}: {operation.name} has {len(sources)} sources for {len(targets)} "
                                  "targets")
        else:
            moves = [([one], [other]) for source, target in zip(sources * (len(targets) // len(sources)), targets)
                     for one, other in zip(source, target)]
        rank = name[0]

        def send(chunk: int, source: int, destination: int, op: Op, after: frozenset[int]) -> tuple[int, ...]:
            """Add a transfer that waits for those of `after` that arrive at its source; return its index."""
            transfers = buffers.transfers
            transfers.append(Transfer(chunk, source, destination, op, tuple(sorted(
                index for index in after if transfers[index].destination == source))))
            return (len(transfers) - 1,)

        for source_slots, target_slots in moves:
            parts = [buffers.read(name, slot) for slot in source_slots]
            if len(parts) == 1:  # put, get or copy
                (content,), (source, *_), added_transfers = parts, source_slots[0], frozenset()
            else:
                terms = [part._replace(arrivals=()) if slot[0] != rank else part
                         for part, slot in zip(parts, source_slots)]
                content, source = buffers.total(name, *terms), rank
                added_transfers = frozenset(index for slot in source_slots if slot[0] != rank
                                            for index in send(content.chunk, slot[0], rank, Op.ADD, transfers_before))
            for target in target_slots:
                arrivals = content.arrivals if source == target[0] else send(
                    content.chunk, source, target[0], Op.COPY, transfers_before | added_transfers)
                buffers.write(name, target, content._replace(arrivals=arrivals))


def _named(name: _Name) -> str:
    return f"GPU {name[0]}, threadblock {name[1]}, operation {name[2]}"

