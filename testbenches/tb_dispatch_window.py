"""DispatchWindow against its model: what may start, how far the head gets, a downstream neighbour, restarts, errors."""

from collections.abc import Iterator

from rtl.registers import EPOCH_BITS, ERRORS
from sim_models.reference.dispatch_window import DispatchWindowModel

from .bench import Bench, rounds
from .drivers import StreamDriver
from .monitors import PulseMonitor
from .pauses import never
from .scoreboard import Scoreboard


class Environment:
    """Completes tiles of started workgroups in random order, the oldest often, and moves the downstream head; also
    keeps the model and what is expected of the design."""

    def __init__(self, bench: Bench, model: DispatchWindowModel, wrong: float) -> None:
        self.bench, self.model, self.wrong = bench, model, wrong
        self.pause = bench.pause()
        self.errors = Scoreboard("errors")
        self.unexpected: tuple[str, dict] | None = None
        self.downstream_end = 0
        self._settled: tuple[int, int] = (0, 0)  # what decides about the next workgroup
        self._settled_cycles = self._cycles = 0  # for so long; since a reset or restart
        bench.add(self)

    def drive(self) -> None:
        rng, left = self.bench.rng, [wg for wg, tiles in self.model.left.items() if tiles]
        valid = not next(self.pause) and bool(left)
        wg = (min(left) if rng.random() < 0.5 else rng.choice(left)) if left else 0
        if rng.random() < self.wrong:
            valid, wg = True, rng.getrandbits(self.bench.geometry.tracker.wg_bits)
        signal = self.bench["completion"]
        signal.write(signal.unpack(rng.getrandbits(signal.width)) | {"valid": int(valid), "wg": wg})
        model = self.model
        if model.downstream_epoch != model.epoch and rng.random() < 0.02:  # its restart has arrived
            model.downstream_epoch, model.downstream_head = model.epoch, 0
        elif rng.random() < 0.3 and model.downstream_head < self.downstream_end:
            model.downstream_head += 1
        self.bench.set("downstream_head", model.downstream_head)
        self.bench.set("downstream_epoch", model.downstream_epoch)

    def sample(self) -> None:
        get, model = self.bench.get, self.model
        assert get("head") <= model.head, "the head leads"
        assert get("epoch") == model.epoch
        if get("dispatch.ready"):
            assert model.following < model.limit, "ready beyond the limit"
        decides = (model.limit, model.following)
        same = decides == self._settled and get("head") == model.head
        self._settled, self._settled_cycles = decides, self._settled_cycles + 1 if same else 0
        self._cycles += 1
        if self._settled_cycles > 4 and self._cycles > self.bench.geometry.tracker.window_slots + 4:
            assert get("dispatch.ready") == (model.following < model.limit), "another limit than the window's"
        wrong, self.unexpected = self.unexpected, None  # a completion is judged a cycle later
        completion, item = get("completion"), get("dispatch.payload")
        if get("dispatch.valid") and get("dispatch.ready"):
            name = model.dispatched(item["wg"], item["tiles"])
            of_dispatch = {"address": 0, "region": 0, "wf": 0, "wg": item["wg"]}
            wrong = (name, of_dispatch) if name else wrong  # of two in one cycle, that of the dispatch is shown
        if completion["valid"]:
            name = model.completed(completion["wg"])
            details = {field: value for field, value in completion.items() if field != "valid"}
            self.unexpected = (name, details) if name else None
        if wrong:
            self._expect(wrong)

    def _expect(self, wrong: tuple[str, dict]) -> None:
        name, details = wrong
        self.errors.expect({"code": ERRORS[name.lower()], "details": details})

    def reset(self) -> None:
        pass

    async def restart(self) -> None:
        """A new kernel here, of which the neighbour hears later."""
        epoch = self.model.epoch ^ 1 << self.bench.rng.randrange(EPOCH_BITS)
        self.bench.set("restart", 1)
        self.bench.set("next_epoch", epoch)
        self.bench.set("completion", {"valid": 0})
        await self.bench.settle(drive=False)
        await self.bench.edge(sample=False)
        self.bench.set("restart", 0)
        self.bench.set("next_epoch", self.bench.rng.getrandbits(EPOCH_BITS))
        self.errors.reset()
        if self.unexpected:  # of the cycle before: still reported
            self._expect(self.unexpected)
        self.unexpected = None
        self._cycles = 0
        self.model.restart(epoch)


def workgroups(bench: Bench, count: int, wrong: float) -> Iterator[dict]:
    rng, t = bench.rng, bench.geometry.tracker
    for wg in range(count):
        if rng.random() < wrong:  # another than the next
            yield {"wg": (wg + rng.choice((-1, 1))) % (1 << t.wg_bits), "tiles": 1}
        yield {"wg": wg, "tiles": rng.choice((0, 1, 1 << t.wf_bits, rng.randrange(2 << t.wf_bits)))}


@rounds(12)
async def random_workgroups(bench: Bench) -> None:
    rng, t = bench.rng, bench.geometry.tracker
    window = rng.choice((1, 3, t.window_slots, (2 << t.wg_bits) - 1))
    shift = rng.choice((rng.randrange(min(window, t.window_slots)), rng.randrange(min(256, 1 << t.wg_bits))))
    model = DispatchWindowModel(t, window, shift, enable_downstream=rng.random() < 0.5)
    for name in ("window", "shift", "enable_downstream"):
        bench.set(name, int(getattr(model, name)))
    wrong, count = rng.choice((0.0, 0.05)), min(rng.choice((100, 300)), 1 << t.wg_bits)
    environment = Environment(bench, model, wrong)
    environment.downstream_end = count + shift
    driver = StreamDriver(bench, "dispatch")
    PulseMonitor(bench, "error", environment.errors.check)
    for _ in range(3):  # kernels; all but the last are cut short
        await bench.cycle(rng.randrange(4))
        driver.send_all(workgroups(bench, count, wrong))
        await bench.cycle(t.window_slots + rng.randint(1, 100))
        driver.reset()
        await environment.restart()
    await bench.cycle(rng.randrange(4))
    driver.send_all(workgroups(bench, count, wrong))
    environment.wrong /= 2
    if await bench.run(lambda: driver.idle and not model.left, 20_000, settle=count + 8):
        environment.wrong = 0
        await bench.cycle(4)
        environment.errors.check_empty()
        assert model.head == count == bench.get("head") and not bench.get("busy")
        assert wrong or not environment.errors.matched


@rounds(1)
async def one_workgroup_per_cycle(bench: Bench) -> None:
    t = bench.geometry.tracker
    bench.set("window", t.window_slots)
    driver, count = StreamDriver(bench, "dispatch", never()), min(100, 1 << t.wg_bits)
    driver.send_all({"wg": wg, "tiles": 0} for wg in range(count))
    await bench.until(lambda: driver.idle, t.window_slots + (count if t.window_slots >= 4 else 4 * count) + 8)
