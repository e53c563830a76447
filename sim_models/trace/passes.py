"""Work of a collective's kernels in a trace: its steps, their passes over chunks, and who stores what where.

A device's workgroups are numbered in the order in which they are drawn. In a step each does its part of all passes that
go on side by side: it reads bytes of a chunk, and of what came to be added to it, and stores the sum here or at a peer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.base.line import lines_of

HERE = -1  #: destination of what is kept; origin of what is a device's own


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
    passes: list[dict]  #: as trace.json has them


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

    def __init__(self, described: dict, mirrored: bool) -> None:
        self._gpus, self._bytes, self._mirrored = described["gpus"], described["chunk_bytes"], mirrored
        self._known: dict[int | None, list[tuple[np.ndarray, list[tuple[int, int]]]]] = {}

    @property
    def devices(self) -> int:
        return len(self._gpus)

    def fault(self, names: int, numbers: int) -> str | None:
        """Say what no run can have had, in words; None: nothing. `numbers`: of the GPUs' own numbers."""
        for device, gpu in enumerate(self._gpus):
            after = 0
            for share in self.shares(device):
                if share["first"] != after:
                    return f"device {device}: workgroup {share['first']} comes after {after - 1}"
                after += share["workgroups"]
                if share["first_byte"] + (share["workgroups"] - 1) * share["apart"] + share["size"] > self._bytes:
                    return f"device {device}: workgroup {after - 1} goes past its chunk"
            if after > names:
                return f"device {device} has {after} workgroups, and names has {names}"
            for one in (one for step in gpu["steps"] for one in step["passes"]):
                if max(one["to"], one["comes_from"], *(source["origin"] for source in one["sources"])) >= numbers:
                    return f"device {device}: a pass names a device beyond {numbers - 1}"
        return None

    @property
    def count(self) -> int:
        """Return how many workgroups the device has that has most."""
        return max(map(self.workgroups, range(self.devices)))

    def shares(self, device: int) -> list[dict]:
        return [share for step in self._gpus[device]["steps"] for share in step["shares"]]

    def workgroups(self, device: int) -> int:
        last = self.shares(device)[-1]
        return last["first"] + last["workgroups"]

    def steps(self, device: int) -> int:
        return len(self._gpus[device]["steps"])

    def over(self, device: int, step: int) -> int | None:
        """Return the cycle in which a step was over, None if it was not; of step -1 that in which the first began."""
        return self._gpus[device]["start"] if step < 0 else self._gpus[device]["steps"][step]["over"]

    def lines(self, device: int, step: int) -> int:
        """Return how many lines must have come since the start before a step is over."""
        return self._gpus[device]["steps"][step]["lines"] if step >= 0 else 0

    def of_step(self, device: int, step: int) -> range:
        """Return the workgroups of a step."""
        shares = self._gpus[device]["steps"][step]["shares"]
        return range(shares[0]["first"], shares[-1]["first"] + shares[-1]["workgroups"])

    def piece(self, device: int, number: int) -> Piece:
        """Return what a workgroup does. Raises BadInput if there is none."""
        if not 0 <= number < self.workgroups(device):
            raise BadInput(f"workgroup {number} does not exist: this device has 0 to {self.workgroups(device) - 1}")
        step = next(step for step in range(self.steps(device)) if number in self.of_step(device, step))
        described = self._gpus[device]["steps"][step]
        share = next(one for one in described["shares"] if number < one["first"] + one["workgroups"])
        return Piece(device, number, step, share["first_byte"] + (number - share["first"]) * share["apart"],
                     share["size"], described["passes"])

    def reads(self, piece: Piece) -> list[tuple[Span, int]]:
        """Return what a workgroup reads, each once, and from which device it came."""
        found = {source["address"]: source["origin"] for one in piece.passes for source in one["sources"]}
        return [(self._span(piece.device, address, piece), origin) for address, origin in found.items()]

    def stores(self, piece: Piece) -> list[tuple[Span, dict]]:
        """Return where a workgroup stores, and by which pass."""
        return [(self._span(self._receiver(piece.device, one), one["destination"], piece), one)
                for one in piece.passes]

    def spans(self, device: int, number: int) -> Iterator[Span]:
        """Give all that a workgroup reads or stores, nothing if a device has none of that number."""
        if number < self.workgroups(device):
            piece = self.piece(device, number)
            yield from (span for span, _ in (*self.reads(piece), *self.stores(piece)))

    def arriving(self, device: int) -> list[Arriving]:
        """List what comes to a device from others."""
        return [Arriving(sender, step, one["comes_from"], one["chunk"],
                         Span(device, one["destination"], one["destination"] + self._bytes), *_named(one))
                for sender, gpu in enumerate(self._gpus) for step, described in enumerate(gpu["steps"])
                for one in described["passes"] if one["to"] != HERE and self._receiver(sender, one) == device]

    @property
    def chunk_lines(self) -> int:
        return lines_of(self._bytes)

    def copies(self, device: int, number: int) -> list[tuple[int, int]]:
        """List who gets what a device sends to a number: simulated devices, with what to add to its address there."""
        found = {(self._receiver(device, one), one["destination"] - _named(one)[1])
                 for step in self._gpus[device]["steps"] for one in step["passes"]
                 if one["to"] != HERE and _named(one)[0] == number}
        return sorted(found)

    def stored_by(self, device: int, addresses: np.ndarray, sender: int | None = None) -> np.ndarray:
        """Return who stores at addresses of a device: int64[address, 2], its index and its workgroup, -1: nobody.

        `sender`: of several whose parts a switch adds, who is meant; None: one of them.
        """
        first, owner = self._owners(sender)[device]
        at = np.searchsorted(first, addresses.astype(np.int64), "right") - 1
        found = np.full((len(addresses), 2), -1)
        for block in np.unique(at[at >= 0]):
            sender, step = owner[block]
            mine = np.flatnonzero(at == block)
            offset = addresses[mine].astype(np.int64) - first[block]
            for share in self._gpus[sender]["steps"][step]["shares"]:
                inside = (offset >= share["first_byte"]) & (
                    offset < share["first_byte"] + share["workgroups"] * share["apart"]) & (offset < self._bytes)
                number = share["first"] + (offset[inside] - share["first_byte"]) // share["apart"]
                found[mine[inside]] = np.stack([np.full(len(number), sender), number], 1)
        return found

    def _owners(self, only: int | None) -> list[tuple[np.ndarray, list[tuple[int, int]]]]:
        """For each device the addresses at which something begins that is stored, and who stores it in which step."""
        if only in self._known:
            return self._known[only]
        found: list[dict[int, tuple[int, int]]] = [{} for _ in self._gpus]
        for sender, gpu in enumerate(self._gpus):
            if only is not None and sender != only:
                continue
            for step, described in enumerate(gpu["steps"]):
                for one in described["passes"]:
                    found[self._receiver(sender, one)].setdefault(one["destination"], (sender, step))
        self._known[only] = [(np.array(sorted(one), np.int64), [one[at] for at in sorted(one)]) for one in found]
        return self._known[only]

    def readers(self, span: Span, after: int) -> list[range]:
        """List the workgroups of steps after this one that read addresses of a device, those of one step together."""
        found = []
        for step, described in enumerate(self._gpus[span.device]["steps"]):
            bases = {source["address"] for one in described["passes"] for source in one["sources"]}
            mine = [base for base in bases if base <= span.first < base + self._bytes]
            if mine and step > after:
                numbers = [number for share in described["shares"] for number in self._overlapping(
                    share, span.first - mine[0], span.end - mine[0])]
                found += [range(numbers[0], numbers[-1] + 1)] if numbers else []
        return found

    @staticmethod
    def _overlapping(share: dict, first: int, end: int) -> range:
        """Return a share's workgroups that have some of these bytes of a chunk."""
        last = share["workgroups"] - 1
        low = max(0, (first - share["first_byte"]) // share["apart"])
        high = min(last, (end - 1 - share["first_byte"]) // share["apart"])
        return range(share["first"] + low, share["first"] + high + 1)

    def _span(self, device: int, base: int, piece: Piece) -> Span:
        return Span(device, base + piece.first_byte, base + piece.first_byte + piece.bytes)

    def _receiver(self, sender: int, one: dict) -> int:
        """Return the simulated device where a pass stores."""
        return sender if self._mirrored or one["to"] == HERE else one["to"]


def _named(one: dict) -> tuple[int, int]:
    """Return to whom and to which address a pass's packets are on the link."""
    sent = one.get("copied") or {"to": one["to"], "address": one["destination"]}
    return sent["to"], sent["address"]
