"""Monitors of a design's outputs."""

from collections.abc import Callable, Iterator

from t3sim.testbenches.bench import Bench


class StreamMonitor:
    """Takes items from an output stream, and checks that valid and payload hold until ready."""

    def __init__(self, bench: Bench, name: str, on_item: Callable[[dict], None] | None = None,
                 pause: Iterator[bool] | None = None, *, waits_for_valid: bool = False) -> None:
        """Watch stream `name`; with `waits_for_valid`, ready comes a cycle after valid at the earliest, as it may."""
        self._waits = waits_for_valid
        self._valid, self._payload = bench[f"{name}.valid"], bench[f"{name}.payload"]
        self._ready = bench[f"{name}.ready"]
        self._bench, self._name, self._on_item = bench, name, on_item
        self.pause = pause or bench.pause()
        self.items: list[dict] = []
        self._held: int | None = None
        bench.add(self)

    def drive(self) -> None:
        self._taking = not next(self.pause) and (self._held is not None or not self._waits)
        self._ready.write(int(self._taking))

    def sample(self) -> None:
        if not self._valid.read_bits():
            assert self._held is None, f"{self._name}: valid fell before ready"
            return
        bits = self._payload.read_bits()
        assert self._held in (None, bits), f"{self._name}: the payload changed before ready"
        self._held = bits
        if self._taking:
            self._held = None
            self._bench.moved = self._bench.now
            self.items.append(self._payload.unpack(bits))
            if self._on_item:
                self._on_item(self.items[-1])

    def withdrawn(self) -> None:
        """Note that what the design offers need not be there in the next cycle."""
        self._held = None

    def reset(self) -> None:
        self._held = None
        self.items.clear()


class PulseMonitor:
    """Collects the values of a struct with a `valid` that is 1 for a cycle at a time: an error report."""

    def __init__(self, bench: Bench, name: str, on_pulse: Callable[[dict], None] | None = None) -> None:
        self._signal, self._on_pulse = bench[name], on_pulse
        self.items: list[dict] = []
        bench.add(self)

    def drive(self) -> None:
        pass

    def sample(self) -> None:
        value = self._signal.read()
        if value.pop("valid"):
            self.items.append(value)
            if self._on_pulse:
                self._on_pulse(value)

    def reset(self) -> None:
        self.items.clear()


class CycleMonitor:
    """Calls a function in every cycle, before the clock rises."""

    def __init__(self, bench: Bench, on_cycle: Callable[[], None]) -> None:
        self.sample = on_cycle
        bench.add(self)

    def drive(self) -> None:
        pass

    def reset(self) -> None:
        pass


class TurnMonitor:
    """Input streams that share a way take turns: while one waits, no other goes twice."""

    def __init__(self, bench: Bench, names: list[str]) -> None:
        self._ports = [(bench[f"{name}.valid"], bench[f"{name}.ready"]) for name in names]
        self._names = names
        self._passed: list[set[int]] = [set() for _ in names]  # those that went since each began to wait
        bench.add(self)

    def drive(self) -> None:
        pass

    def sample(self) -> None:
        ready = [ready.read_bits() for _, ready in self._ports]
        asks = [valid.read_bits() for valid, _ in self._ports]
        goes = {number for number, (asked, taken) in enumerate(zip(asks, ready)) if asked and taken}
        for number, passed in enumerate(self._passed):
            if number in goes or not asks[number]:
                passed.clear()
                continue
            twice = goes & passed
            assert not twice, f"{self._names[number]} waits while {self._names[min(twice)]} goes twice"
            passed |= goes

    def reset(self) -> None:
        for passed in self._passed:
            passed.clear()
