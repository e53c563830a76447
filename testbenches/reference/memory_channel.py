"""Transaction-level scoreboard for a memory channel, exact in what the order guard lets pass and when.

Which stream goes first is the arbiter's matter and has its own model; here any interleaving is accepted that
keeps each stream's order, loses nothing, reports every tracked write and keeps DMA reads after tracked writes.
"""

from collections import deque

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.reference.egress import data_sources
from t3sim.testbenches.reference.order_guard import OrderGuardModel, bucket_of

READ = 0
STREAMS = ("compute", "inbound", "dma")


class MemoryChannelError(AssertionError):
    """The channel did something that its contract forbids."""


def is_tracked(request: dict) -> bool:
    return request["op"] != READ and request["region"] != 0


def _check(condition: bool, text: str) -> None:
    if not condition:
        raise MemoryChannelError(text)


class MemoryChannelModel:
    """Call `cycle` once per cycle with everything that was seen in it.

    Requests, commands and updates are dicts with the field names of `t3sim.rtl.layouts`. A DMA read on
    `dram` must be distinguishable from inbound traffic: inbound carries no reads.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        self.guard = OrderGuardModel(geometry)
        self._retiring = None
        self._forgot = False  #: in the cycle before
        self.queued = {stream: deque() for stream in STREAMS}
        self.accesses = deque()  #: tracked writes shown on `dram` and not yet reported
        self.shown = 0
        self.holds = False  #: the output, in the cycle stepped last

    def cycle(self, accepted: dict | None = None, shown: dict | None = None, update: dict | None = None,
              retired: int | None = None, forget: bool = False, standing: dict | None = None) -> str | None:
        """Step one cycle; return the stream of the command shown.

        accepted: {stream: request} transfers at the inputs. shown: the command on `dram` in the first cycle in
        which it is there (a command after a transfer counts as new). update: transfer on `updates`.
        retired: bucket of `retirement`. forget: what is on its way to the Tracker is lost. standing: the request on
        `dram`, in its first cycle and after it.
        """
        stream = self._show(shown) if shown is not None else None
        self.holds = bool(any(is_tracked(item) for queue in self.queued.values() for item in queue)
                          or self.queued["dma"] or self.accesses
                          or (standing is not None and self._is_watched(standing)))
        # A read shown now was granted a cycle ago, when only retirements before that cycle were known.
        self.guard.tick(retired_bucket=self._retiring)
        self._retiring = retired
        if update is not None:
            self._report(update)
        for name, request in (accepted or {}).items():
            self.queued[name].append(request)
        if forget:
            self.accesses.clear()
        self._forgot = forget
        return stream

    def _is_watched(self, request: dict) -> bool:
        return is_tracked(request) or (request["op"] == READ and request["source"] in data_sources(self._geometry))

    def _show(self, command: dict) -> str:
        request = command["request"]
        if not command["communication"]:
            stream = "compute"
        else:
            stream = "dma" if request["op"] == READ else "inbound"
        queue = self.queued[stream]
        _check(bool(queue), f"{request} was never accepted from {stream}")
        _check(queue[0] == request, f"{stream}: expected {queue[0]}, got {request}")
        queue.popleft()
        self.shown += 1
        address = request["address"]
        _check(command["bucket"] == bucket_of(address, self._geometry) or not is_tracked(request),
               f"bucket {command['bucket']} of {request}")
        if stream == "dma":
            _check(not self.guard.blocked(address), f"{request} passed a tracked write of its bucket")
        if is_tracked(request):
            _check(self.guard.room(), f"{request} is one more unretired write than the guard can count")
            self.guard.tick(write_address=address)
            if not self._forgot:  # when it was granted
                self.accesses.append(request)
        return stream

    def _report(self, update: dict) -> None:
        key = [update[name] for name in ("wg", "wf", "region")]
        amount, addresses, source = 0, [], None
        while amount < update["amount"]:
            _check(bool(self.accesses), f"{update} reports more bytes than were written")
            access = self.accesses.popleft()
            _check([access[name] for name in ("wg", "wf", "region")] == key, f"{update} skips {access}")
            amount += access["bytes"] * (access.get("more", 0) + 1)
            addresses.append(access["address"])
            source = access["source"]
        _check(amount == update["amount"] and bool(addresses), f"{update} splits an access")
        _check(update["address"] == min(addresses), f"{update}: the smallest address is {min(addresses):#x}")
        _check(update["source"] == source, f"{update}: the last source is {source}")

    def check_empty(self) -> None:
        for stream, queue in self.queued.items():
            _check(not queue, f"{len(queue)} requests of {stream} never arrived")
        _check(not self.accesses, f"{len(self.accesses)} tracked writes were never reported")
