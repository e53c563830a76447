"""Drivers of a design's inputs: streams, and the configuration bus."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from t3sim.testbenches.bench import Bench


class StreamDriver:
    """A driver that offers items on an input stream, in order, each until it is accepted.

    While nothing is offered the payload is random: a design that looks at it then is wrong.
    """

    def __init__(self, bench: Bench, name: str, pause: Iterator[bool] | None = None,
                 on_accept: Callable[[dict], None] | None = None) -> None:
        self._bench = bench
        self._valid, self._payload = bench[f"{name}.valid"], bench[f"{name}.payload"]
        self._ready = bench[f"{name}.ready"]
        self.on_accept = on_accept
        self.pause = pause or bench.pause()
        self.waiting: deque[dict] = deque()
        self.offered: dict | None = None
        self.accepted = 0
        bench.add(self)

    @property
    def idle(self) -> bool:
        return self.offered is None and not self.waiting

    def send(self, *items: dict) -> None:
        self.waiting += items

    def send_all(self, items: Iterable[dict]) -> None:
        self.waiting += items

    def drive(self) -> None:
        if self.offered is None and not next(self.pause) and self.waiting:
            self.offered = self.waiting.popleft()
            self._payload.write(self.offered)
            self._valid.write(1)
        elif self.offered is None:
            self._withdraw()

    def sample(self) -> None:
        if self.offered is None or not self._ready.read_bits():
            return
        item, self.offered = self.offered, None
        self.accepted += 1
        self._bench.moved = self._bench.now
        if self.on_accept:
            self.on_accept(item)

    def reset(self) -> None:
        self.waiting.clear()
        self.offered = None
        self._withdraw()

    def _withdraw(self) -> None:
        self._valid.write(0)
        self._payload.write(self._bench.rng.getrandbits(self._payload.width))


class ApbDriver:
    """Transfers on an APB bus; `prefix` as in `apb.`. Checks the protocol's wait states."""

    _PATIENCE_CYCLES = 8

    def __init__(self, bench: Bench, prefix: str = "") -> None:
        self._bench, self._prefix = bench, prefix

    async def transfer(self, offset: int, write: int | None = None) -> tuple[int, int]:
        """Return (pslverr, prdata) of one transfer; with `write` given, a write.

        The data of a read's request are random.
        """
        data = self._bench.rng.getrandbits(32) if write is None else write
        self._set(paddr=offset, pwrite=int(write is not None), pwdata=data, psel=1, penable=0)
        await self._bench.settle()
        assert not self._get("pready"), "pready before the access phase"
        await self._bench.edge()
        self._set(penable=1)
        for _ in range(self._PATIENCE_CYCLES):
            await self._bench.settle()
            done, answer = self._get("pready"), (self._get("pslverr"), self._get("prdata"))
            await self._bench.edge()
            if done:
                self._set(psel=0, penable=0)
                return answer
        raise AssertionError(f"register {offset:#05x}: no answer")

    async def write_all(self, writes: Iterable) -> None:
        """Write what `t3sim.cosim.driver.driver` asks for."""
        for offset, value in writes:
            error, _ = await self.transfer(offset, value)
            assert not error, f"register {offset:#05x}: write refused"

    async def read(self, offset: int) -> int:
        error, value = await self.transfer(offset)
        assert not error, f"register {offset:#05x}: read refused"
        return value

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self._bench.set(self._prefix + name, value)

    def _get(self, name: str) -> int:
        return self._bench.get(self._prefix + name)
