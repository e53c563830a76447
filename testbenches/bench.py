"""The clock, the reset and the ports of a design, for all testbenches.

In the first half of a cycle the clock is low: inputs change, and combinational outputs settle. Then everybody samples,
and the clock rises. No testbench depends on the order of events within one instant, so all simulators agree.

The folder named by $T3_BENCH holds `ports.json` (a PortMap) and `run.json` (geometry, length, rounds, and of which test
and round all ports are recorded).
"""

import json
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Protocol

import cocotb
from cocotb.triggers import Timer

from t3sim.rtl.geometry import ChannelGeometry, DmaGeometry, Geometry, SwitchGeometry, TrackerGeometry
from t3sim.rtlsim.port_map import RESET, Port, PortMap
from t3sim.testbenches import failure, pauses
from t3sim.testbenches.coverage.cross import Counts
from t3sim.testbenches.coverage.points import crosses

_UNKNOWN_IS_0 = str.maketrans("XxZzUuWw-", "000000000")
_HALF_PERIOD_PS = 500  # the 1 GHz memory clock


class Agent(Protocol):
    """Takes part in every cycle."""

    def drive(self) -> None:
        """Set inputs for this cycle."""

    def sample(self) -> None:
        """Look at what the coming clock edge will do."""

    def reset(self) -> None:
        """Forget what was in flight: the design is reset."""


class Signal:
    """One port, its value an integer or, for a struct, a dict of its fields."""

    def __init__(self, port: Port, handle) -> None:
        self.width = port.width
        self._handle = handle
        self._written: int | None = None
        names = list(port.fields)
        self._leaves = [(_path(name), field.lsb, (1 << field.width) - 1) for name, field in port.fields.items()
                        if not any(other.startswith((f"{name}.", f"{name}[")) for other in names)]

    def write(self, value: int | dict) -> None:
        """Drive an input; a struct's fields that are not named become 0."""
        if isinstance(value, dict):
            value = self.pack(value)
        if value != self._written:
            self._handle.value = self._written = int(value)

    def read(self) -> int | dict:
        """Return the value. Unknown bits are an error, but in a struct's fields of several bits: these are None."""
        if not self._leaves or self.width == 1:
            return self.unpack(self.read_bits()) if self._leaves else self.read_bits()
        bits = self._handle.value
        if bits.is_resolvable:
            return self.unpack(bits.to_unsigned())
        known = self.unpack(int(str(bits).translate(_UNKNOWN_IS_0), 2))
        for path, lsb, mask in self._leaves:
            if not bits[lsb + mask.bit_length() - 1:lsb].is_resolvable:
                assert mask > 1, f"{'.'.join(path)} is unknown"
                inner = known
                for name in path[:-1]:
                    inner = inner[name]
                inner[path[-1]] = None
        return known

    def read_bits(self) -> int:
        """Return the value as one integer. A value with unknown bits is an error."""
        return int(self._handle.value) if self.width == 1 else self._handle.value.to_unsigned()

    def pack(self, value: dict) -> int:
        bits, left = 0, _flat(value)
        for path, lsb, mask in self._leaves:
            part = left.pop(path, 0)
            assert 0 <= part <= mask, f"{'.'.join(path)}={part} does not fit"
            bits |= part << lsb
        assert not left, f"there are no fields {sorted(left)}"
        return bits

    def unpack(self, bits: int) -> dict:
        value: dict = {}
        for path, lsb, mask in self._leaves:
            inner = value
            for name in path[:-1]:
                inner = inner.setdefault(name, {})
            inner[path[-1]] = bits >> lsb & mask
        return value


class Bench:
    """Everything between a testbench and its design. Starts with all inputs 0, in reset."""

    def __init__(self, dut) -> None:
        self.folder = folder = _folder()
        run = json.loads((folder / "run.json").read_text())
        ports = PortMap.load(folder / "ports.json")
        self._ports, self._recorded = ports, run["record"]
        self.samples: failure.Samples | None = None  #: of a round whose failure is to be explained
        self.geometry = _geometry(run)
        self.length: int = run["length"]
        self.rounds: int | None = run["rounds"]  #: fewer than a test asks for
        #: cocotb seeds Python's generator before every test, from its seed and the test's name
        self.rng = random.Random(random.getrandbits(64))
        self.number = 0  #: of this round
        self.cut: int | None = None  #: cycles after which a reset comes, see `rounds`
        self.reached: Counter[str] = Counter()
        self.now = 0  #: cycles since the test began
        self.moved: int | None = None  #: cycle in which an item last moved through a stream
        self._signals = {port.name: Signal(port, getattr(dut, port.verilog)) for port in ports}
        self._clock = getattr(dut, ports.clock) if ports.clock else None  # a combinational block has none
        self._low = False
        self._agents: list[Agent] = []
        for name in ports.inputs:
            self[name].write(0)

    def __getitem__(self, name: str) -> Signal:
        return self._signals[name]

    def set(self, name: str, value: int | dict) -> None:
        self._signals[name].write(value)

    def get(self, name: str) -> int | dict:
        return self._signals[name].read()

    def elements(self, name: str) -> list[str]:
        """Name an array's elements: `lines[0]`, `lines[1]`."""
        found: list[str] = []
        while any(port.startswith(f"{name}[{len(found)}]") for port in self._signals):
            found.append(f"{name}[{len(found)}]")
        return found

    def add(self, agent: Agent) -> None:
        self._agents.append(agent)

    def other_parts(self) -> dict:
        """Draw how many parts of a sum a request has beside the first, if the geometry's requests say so."""
        bits = self.geometry.channel.more_bits
        return {"more": self.rng.getrandbits(bits)} if bits else {}

    def pause(self) -> Iterator[bool]:
        """Make a fresh random pause pattern."""
        return pauses.changing(random.Random(self.rng.getrandbits(64)))

    def reach(self, point: str, happened: bool = True) -> None:
        """Note that a point of the test's coverage was reached."""
        self.reached[point] += happened

    def record(self, test: str) -> None:
        """Keep what the ports show, if it is this round of this test that failed before."""
        wanted = self._recorded
        if wanted and (wanted["test"], wanted["round"]) == (test, self.number):
            self.samples = failure.Samples(self, self._ports, wanted["end"])

    async def reset(self, cycles: int = 1) -> None:
        """Reset the design, whatever it is doing."""
        for agent in self._agents:
            agent.reset()
        if self._clock is None:
            return
        self.set(RESET, 1)
        for _ in range(cycles):
            await self.settle(drive=False)
            await self.edge(sample=False)
        self.set(RESET, 0)

    async def settle(self, drive: bool = True) -> None:
        """Run the first half of a cycle."""
        if drive:
            for agent in self._agents:
                agent.drive()
        self._drive_clock(0)
        await Timer(_HALF_PERIOD_PS, "ps")

    async def edge(self, sample: bool = True) -> None:
        """Run the second half of a cycle."""
        if sample:
            for agent in self._agents:
                agent.sample()
        await self.finish_cycle()

    def _drive_clock(self, level: int) -> None:
        self._low = not level
        if self._clock is not None:
            self._clock.value = level

    async def finish_cycle(self) -> None:
        """Let the clock rise, unless it has."""
        if not self._low:
            return
        if self.samples:
            self.samples.before_edge()
        self._drive_clock(1)
        await Timer(_HALF_PERIOD_PS, "ps")
        if self.samples:
            self.samples.behind_edge()
        self.now += 1

    async def cycle(self, count: int = 1) -> None:
        for _ in range(count):
            await self.settle()
            await self.edge()

    async def until(self, condition: Callable[[], bool], limit: int, patience: int | None = None) -> None:
        """Run cycles until the condition holds; more than `limit` is an error.

        So are more than `patience` in which nothing moves through any stream.
        """
        start = self.now
        while not condition():
            assert self.now - start < limit, f"nothing more happens after {limit} cycles"
            still = self.now - max(start, self.moved or 0)
            assert patience is None or still < patience, f"nothing has moved for {patience} cycles"
            await self.cycle()

    async def run(self, done: Callable[[], bool], limit: int, settle: int = 8, patience: int | None = None) -> bool:
        """Run `until`, and `settle` cycles more; False if this round is one that a reset cuts short."""
        if self.cut is not None:
            await self.cycle(self.cut)
            return False
        await self.until(done, limit, patience)
        await self.cycle(settle)
        return True


def rounds(count: int, cover: tuple[str, ...] = (),
           given: Callable[[Geometry], bool] = lambda geometry: True) -> Callable:
    """Make a cocotb test of an `async def body(bench)`: called in each of `count` rounds, with a bench after a reset.

    Of every second round no more than the beginning is run (see `run`), so that the next reset meets traffic. The
    points named in `cover` must be reached in some round, by `bench.reach`, unless fewer rounds are asked for. With a
    geometry that is not as `given` says the test is skipped.
    """
    def decorate(body: Callable[[Bench], Awaitable[None]]) -> Callable:
        async def test(dut) -> None:
            counts = Counts(body.__module__.rpartition(".tb_")[2], body.__name__, lambda: crosses(_run_geometry()))
            reached: Counter[str] = Counter()
            number, last = 0, 1
            while number < last:
                bench = Bench(dut)
                bench.reached, bench.number, last = reached, number, bench.rounds or count * bench.length
                bench.cut = bench.rng.randint(1, 150) if number % 2 else None
                bench.record(body.__name__)
                counts.attach(bench)
                try:
                    await bench.reset()
                    await body(bench)
                except Exception as error:
                    await failure.keep(bench, body.__name__, error)
                    raise
                number += 1
            counts.save()
            missing = [point for point in cover if not reached[point] and not bench.rounds]
            assert not missing, f"never reached: {missing}"

        test.__name__, test.__qualname__, test.__doc__ = body.__name__, body.__qualname__, body.__doc__
        test.__module__ = body.__module__
        return cocotb.test(skip=not given(_run_geometry()))(test)

    return decorate


def _folder() -> Path:
    return Path(os.environ["T3_BENCH"])


def _run_geometry() -> Geometry:
    return _geometry(json.loads((_folder() / "run.json").read_text()))


def _geometry(run: dict) -> Geometry:
    tracker, channel, dma, switch = (run["geometry"][name] for name in ("tracker", "channel", "dma", "switch"))
    return Geometry(TrackerGeometry(**tracker), ChannelGeometry(**channel), DmaGeometry(**dma),
                    SwitchGeometry(**switch))


def _path(name: str) -> tuple[str, ...]:
    return tuple(name.replace("[", ".").replace("]", "").split("."))


def _flat(value: dict, prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    parts: dict[tuple[str, ...], int] = {}
    for name, inner in value.items():
        if isinstance(inner, dict):
            parts |= _flat(inner, (*prefix, name))
        else:
            parts[*prefix, name] = int(inner)
    return parts
