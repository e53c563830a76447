"""The dispatcher beside a dispatch window: requests in an order that windows let through, and room for workgroups."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from random import Random

from t3sim.testbenches.bench import Bench
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.reference.dispatch_window import Request

QUEUE = 2  #: requests that wait inside


class Dispatcher:
    """Queues requests, now and then has room for a workgroup, and knows which requests have gone.

    `on_go` is called with each request that goes. `pauses` say when no request is offered, and when there is no room.
    """

    def __init__(self, bench: Bench, on_go: Callable[[Request], None] | None = None,
                 pauses: Callable[[], Iterator[bool]] | None = None) -> None:
        pauses = pauses or bench.pause
        self._bench, self.on_go = bench, on_go
        self._rooms, self._room, self._stopped = pauses(), False, False
        self.inside: deque[Request] = deque()
        self.waiting = 0  #: requests that have not gone
        bench.add(self)  # what goes was taken in an earlier cycle: before the stream
        self._stream = StreamDriver(bench, "dispatch", pauses(),
                                    on_accept=lambda item: self.inside.append(Request(**item)))

    @property
    def idle(self) -> bool:
        return not self.waiting

    def send(self, *requests: Request) -> None:
        self.send_all(requests)

    def send_all(self, requests: Iterable[Request]) -> None:
        before = len(self._stream.waiting)
        self._stream.send_all(request._asdict() for request in requests)
        self.waiting += len(self._stream.waiting) - before

    @property
    def next_ids(self) -> set[int]:
        """Ids of the requests that are inside or offered."""
        offered = [] if self._stream.offered is None else [self._stream.offered["id"]]
        return {request.id for request in self.inside}.union(offered)

    def drive(self) -> None:
        self._room = not next(self._rooms) and not self._stopped
        self._bench.set("start", int(self._room))

    def sample(self) -> None:
        grant, blocked = self._bench.get("grant"), self._bench.get("blocked")
        first = self.inside[0] if self.inside else None
        if grant["valid"]:
            assert first and first.starts and grant["id"] == first.id and not blocked, f"{grant}, not {first}"
        if first and not blocked and (grant["valid"] and self._room or not first.starts):
            self.waiting -= 1
            self._bench.moved = self._bench.now
            self.inside.popleft()
            if self.on_go:
                self.on_go(first)
        assert len(self.inside) <= QUEUE

    def withdraw(self) -> None:
        """Offer nothing and have no room, from now on in this cycle."""
        self._room = False
        self._bench.set("start", 0)
        self._stream.reset()

    def stop(self) -> None:
        """Offer nothing more and have no room until a reset; what is inside and starts no workgroup still goes."""
        self._stopped = True
        self._stream.reset()
        self.waiting = len(self.inside)

    def reset(self) -> None:
        """Forget all requests: a reset, or a restart of the window."""
        self._stopped = False
        self.inside.clear()
        self.waiting = 0
        self._stream.reset()


def lawful_order(rng: Random, count: int, window: int) -> Iterator[int]:
    """Draw ids 0 to `count` - 1 in an order that a window lets through.

    Each is below the smallest left plus the window.
    """
    left = list(range(count))
    while left:
        near = sum(one < left[0] + window for one in left[:8])
        yield left.pop(rng.choice((0, rng.randrange(near))))
