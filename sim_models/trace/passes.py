"""Work of a collective's kernels in a trace: its steps, their passes over chunks, and who stores what where.

A device's workgroups are numbered in the order in which they are drawn. In a step each does its part of all passes that
go on side by side: it reads bytes of a chunk, and of what came to be added to it, and stores the sum here or at a peer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from t3sim.base.errors import BadInput
from t3sim.base.line import lines_of

HERE = -1  #: destination of what is kept; origin of what is a device's own

Count = Annotated[int, Field(ge=0, le=1 << 48)]
Size = Annotated[int, Field(ge=1, le=1 << 24)]
Number = Annotated[int, Field(ge=-1, le=1024)]  #: of a device, or HERE


class Described(BaseModel):
    """A part of trace.json: every field has the type and size that its readers count on."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class TracedSource(Described):
    address: Count
    origin: Number


class CopiedBySwitch(Described):
    to: Number
    address: Count


class TracedPass(Described):
    chunk: Count
    sources: Annotated[list[TracedSource], Field(min_length=1)]
    destination: Count
    to: Number
    comes_from: Number
    copied: CopiedBySwitch | None = None

    @property
    def on_link(self) -> tuple[int, int]:
        """Return to whom and to which address its packets are on the link."""
        return (self.copied.to, self.copied.address) if self.copied else (self.to, self.destination)


class TracedShare(Described):
    """Workgroups of a step that divide their chunks alike."""

    first: Count
    workgroups: Size
    first_byte: Count
    apart: Size
    size: Size

    @property
    def end(self) -> int:
        return self.first + self.workgroups

    def overlapping(self, first: int, end: int) -> range:
        """Return the workgroups that have some of these bytes of a chunk."""
        low = max(0, (first - self.first_byte) // self.apart)
        high = min(self.workgroups - 1, (end - 1 - self.first_byte) // self.apart)
        return range(self.first + low, self.first + high + 1)


class TracedStep(Described):
    over: Count | None
    lines: Count
    passes: Annotated[list[TracedPass], Field(min_length=1)]
    shares: Annotated[list[TracedShare], Field(min_length=1)]


class TracedGpu(Described):
    start: Count
    steps: Annotated[list[TracedStep], Field(min_length=1)]


class TracedCollective(Described):
    chunk_bytes: Annotated[int, Field(ge=1, le=1 << 48)]
    gpus: Annotated[list[TracedGpu], Field(min_length=1)]


class Span(NamedTuple):
    """Addresses at a simulated device, up to one past the last."""

    device: int
    first: int
    end: int


@dataclass(frozen=True)
class Piece:
    """Work of one workgroup: its part of all passes of a step."""

    device: int  #: simulated
    number: int
    step: int
    first_byte: int  #: of each chunk
    bytes: int
    passes: list[TracedPass]


@dataclass(frozen=True)
class Arriving:
    """Chunk that comes to a device by one pass of another's, or of its own if it stands for all."""

    sender: int  #: simulated
    step: int  #: of the sender
    number: int  #: of the device whose data they are
    chunk: int
    span: Span
    sent_to: int  #: who is named on its packets: the device, or a group that a switch copies to
    sent_at: int  #: likewise the chunk's address


class Passes:
    """The passes of all simulated devices, by what trace.json says of them under `collective`."""

    def __init__(self, described: TracedCollective, mirrored: bool) -> None:
        self._gpus, self._bytes, self._mirrored = described.gpus, described.chunk_bytes, mirrored
        #: By sender, None for any: where on each device stored chunks begin, and the (sender, step) of each.
        self._stores: dict[int | None, list[tuple[np.ndarray, list[tuple[int, int]]]]] = {}

    @property
    def devices(self) -> int:
        return len(self._gpus)

    def fault(self, names: int, numbers: int) -> str | None:
        """Say what no run can have had, in words; None: nothing. `numbers`: of the GPUs' own numbers."""
        for device, gpu in enumerate(self._gpus):
            after = 0
            for share in self.shares(device):
                if share.first != after:
                    return f"GPU {device}: workgroup {share.first} comes after {after - 1}"
                after = share.end
                if share.first_byte + (share.workgroups - 1) * share.apart + share.size > self._bytes:
                    return f"GPU {device}: workgroup {after - 1} goes past its chunk"
            if after > names:
                return f"GPU {device} has {after} workgroups, and names has {names}"
            for move in (move for step in gpu.steps for move in step.passes):
                if max(move.to, move.comes_from, *(source.origin for source in move.sources)) >= numbers:
                    return f"GPU {device}: a pass names a GPU beyond {numbers - 1}"
        return None

    @property
    def count(self) -> int:
        """Return how many workgroups the device has that has most."""
        return max(map(self.workgroups, range(self.devices)))

    def shares(self, device: int) -> list[TracedShare]:
        return [share for step in self._gpus[device].steps for share in step.shares]

    def workgroups(self, device: int) -> int:
        return self.shares(device)[-1].end

    def steps(self, device: int) -> int:
        return len(self._gpus[device].steps)

    def over(self, device: int, step: int) -> int | None:
        """Return the cycle in which a step was over, None if it was not; of step -1 that in which the first began."""
        return self._gpus[device].start if step < 0 else self._gpus[device].steps[step].over

    def lines(self, device: int, step: int) -> int:
        """Return how many lines must have come since the start before a step is over."""
        return self._gpus[device].steps[step].lines if step >= 0 else 0

    def lines_of_step(self, device: int, step: int) -> int:
        """Return how many lines a step waits for that no step before it has waited for."""
        return max(0, self.lines(device, step) - max(self.lines(device, before) for before in range(-1, step)))

    def of_step(self, device: int, step: int) -> range:
        """Return the workgroups of a step."""
        shares = self._gpus[device].steps[step].shares
        return range(shares[0].first, shares[-1].end)

    def piece(self, device: int, number: int) -> Piece:
        """Return what a workgroup does. Raises BadInput if there is none."""
        if not 0 <= number < self.workgroups(device):
            raise BadInput(f"workgroup {number} does not exist: this GPU has 0 to {self.workgroups(device) - 1}")
        step = next(step for step in range(self.steps(device)) if number in self.of_step(device, step))
        described = self._gpus[device].steps[step]
        share = next(share for share in described.shares if number < share.end)
        return Piece(device, number, step, share.first_byte + (number - share.first) * share.apart, share.size,
                     described.passes)

    def reads(self, piece: Piece) -> list[tuple[Span, int]]:
        """Return what a workgroup reads, each once, and from which device it came."""
        origins = {source.address: source.origin for move in piece.passes for source in move.sources}
        return [(self._span(piece.device, address, piece), origin) for address, origin in origins.items()]

    def stores(self, piece: Piece) -> list[tuple[Span, TracedPass]]:
        """Return where a workgroup stores, and by which pass."""
        return [(self._span(self._receiver(piece.device, move), move.destination, piece), move)
                for move in piece.passes]

    def spans(self, device: int, number: int) -> Iterator[Span]:
        """Give all that a workgroup reads or stores, nothing if a device has none of that number."""
        if number < self.workgroups(device):
            piece = self.piece(device, number)
            yield from (span for span, _ in (*self.reads(piece), *self.stores(piece)))

    def arriving(self, device: int) -> list[Arriving]:
        """List what comes to a device from others."""
        return [Arriving(sender, step, move.comes_from, move.chunk,
                         Span(device, move.destination, move.destination + self._bytes), *move.on_link)
                for sender, step, move in self._moves() if move.to != HERE and self._receiver(sender, move) == device]

    @property
    def chunk_lines(self) -> int:
        return lines_of(self._bytes)

    def copies(self, device: int, number: int) -> list[tuple[int, int]]:
        """List who gets what a device sends to a number: simulated devices, with what to add to its address there."""
        return sorted({(self._receiver(device, move), move.destination - move.on_link[1])
                       for step in self._gpus[device].steps for move in step.passes
                       if move.to != HERE and move.on_link[0] == number})

    def stored_by(self, device: int, addresses: np.ndarray, sender: int | None = None) -> np.ndarray:
        """Return who stores at addresses of a device: int64[address, 2], its index and its workgroup, -1: nobody.

        `sender`: of several whose parts a switch adds, who is meant; None: one of them.
        """
        if sender not in self._stores:
            chunks: list[dict[int, tuple[int, int]]] = [{} for _ in self._gpus]
            for gpu, step, move in self._moves():
                if sender in (None, gpu):
                    chunks[self._receiver(gpu, move)].setdefault(move.destination, (gpu, step))
            self._stores[sender] = [(np.array(sorted(chunk), np.int64), [chunk[at] for at in sorted(chunk)])
                                    for chunk in chunks]
        first, owner = self._stores[sender][device]
        at = np.searchsorted(first, addresses.astype(np.int64), "right") - 1
        stored = np.full((len(addresses), 2), -1)
        for block in np.unique(at[at >= 0]):
            gpu, step = owner[block]
            mine = np.flatnonzero(at == block)
            offset = addresses[mine].astype(np.int64) - first[block]
            for share in self._gpus[gpu].steps[step].shares:
                inside = (offset >= share.first_byte) & (offset < share.first_byte + share.workgroups * share.apart) & (
                    offset < self._bytes)
                number = share.first + (offset[inside] - share.first_byte) // share.apart
                stored[mine[inside]] = np.stack([np.full(len(number), gpu), number], 1)
        return stored

    def readers(self, span: Span, after: int) -> list[range]:
        """List the workgroups of steps after this one that read addresses of a device, those of one step together."""
        groups = []
        for described in self._gpus[span.device].steps[after + 1:]:
            chunk = next((source.address for move in described.passes for source in move.sources
                          if source.address <= span.first < source.address + self._bytes), None)
            if chunk is not None:
                numbers = [number for share in described.shares
                           for number in share.overlapping(span.first - chunk, span.end - chunk)]
                groups += [range(numbers[0], numbers[-1] + 1)] if numbers else []
        return groups

    def _moves(self) -> Iterator[tuple[int, int, TracedPass]]:
        """Give all passes, each with its device and step."""
        for device, gpu in enumerate(self._gpus):
            for step, described in enumerate(gpu.steps):
                yield from ((device, step, move) for move in described.passes)

    def _span(self, device: int, base: int, piece: Piece) -> Span:
        return Span(device, base + piece.first_byte, base + piece.first_byte + piece.bytes)

    def _receiver(self, sender: int, move: TracedPass) -> int:
        """Return the simulated device where a pass stores."""
        return sender if self._mirrored or move.to == HERE else move.to
