"""DispatchWindow against its model: what goes, how far the head gets, peers, restarts, errors."""

from collections import deque
from collections.abc import Iterator

from t3sim.rtl.registers import EPOCH_BITS, ERRORS
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.dispatcher import Dispatcher, lawful_order
from t3sim.testbenches.monitors import PulseMonitor, StreamMonitor
from t3sim.testbenches.pauses import never
from t3sim.testbenches.reference.coalescer import Update
from t3sim.testbenches.reference.dispatch_window import DispatchWindowModel, Request
from t3sim.testbenches.scoreboard import Scoreboard


class Environment:
    """An environment that completes tiles of open ids in random order, the oldest often, and moves the peers' heads.

    It also keeps the model and what is expected of the design.
    """

    def __init__(self, bench: Bench, model: DispatchWindowModel, wrong: float) -> None:
        self.bench, self.model, self.wrong = bench, model, wrong
        self.pause = bench.pause()
        self.errors = Scoreboard("errors")
        self.of_request: tuple[str, dict] | None = None  #: the error of what goes in this cycle
        self.of_completion: tuple[str, dict] | None = None  #: judged a cycle later
        self.upcoming: dict | None = None  #: the completion of the next cycle
        self.peer_end = 0
        self.dispatcher = Dispatcher(bench, self._gone)
        self._settled: tuple = ()  # what decides about the next request
        self._settled_cycles = self._cycles = 0  # for so long; since a reset or restart
        self._owed, self._end = False, 0  # whether anything was inside, and the window's end, a cycle ago
        self._heads: deque[tuple[int, int]] = deque(maxlen=3)  # here and in the model, of the last cycles
        self.admissions = StreamMonitor(bench, "admissions", lambda item: model.admitted(Update(**item)))
        bench.add(self)  # behind the dispatcher: a completion counts after what goes in the same cycle

    def drive(self) -> None:
        signal, now = self.bench["completion"], self.upcoming
        item = signal.unpack(self.bench.rng.getrandbits(signal.width)) if now is None else now
        signal.write(item | {"valid": int(now is not None)})
        self.upcoming = self._next(now)
        signal = self.bench["upcoming"]
        signal.write(self.upcoming["wg"] if self.upcoming else self.bench.rng.getrandbits(signal.width))
        rng, model = self.bench.rng, self.model
        for peer in range(len(model.peer_heads)):
            if model.peer_epochs[peer] != model.epoch and rng.random() < 0.02:  # its restart has arrived
                model.peer_epochs[peer], model.peer_heads[peer] = model.epoch, 0
            elif rng.random() < 0.3 and model.peer_heads[peer] < self.peer_end:
                model.peer_heads[peer] += 1
            self.bench.set(f"peer_heads[{peer}]", model.peer_heads[peer])
            self.bench.set(f"peer_epochs[{peer}]", model.peer_epochs[peer])

    def _next(self, now: dict | None) -> dict | None:
        """Draw what completes in the next cycle, when `now` does in this one: mostly a tile of an open id.

        A wrong one's id is not opened until then, or has been.
        """
        rng, model, t = self.bench.rng, self.model, self.bench.geometry.tracker
        left = dict(model.left)
        if now and left.get(now["wg"]):
            left[now["wg"]] -= 1
        able = [wg for wg, tiles in left.items() if tiles]
        valid = not next(self.pause) and bool(able)
        wg = (min(able) if rng.random() < 0.5 else rng.choice(able)) if able else 0
        if rng.random() < self.wrong:
            wg = rng.getrandbits(t.wg_bits)
            valid = wg in model.tiles or wg not in self.dispatcher.next_ids
        signal = self.bench["completion"]
        item = signal.unpack(rng.getrandbits(signal.width)) | {"wg": wg}
        if rng.random() >= self.wrong and model.tiles.get(wg):
            item["wf"] = rng.randrange(model.tiles[wg]) % (1 << t.wf_bits)
        return item if valid else None

    def _gone(self, request: Request) -> None:
        name = self.model.goes(request)
        if name:
            self.of_request = name, {"address": 0, "region": 0, "wf": 0, "wg": request.id}

    def sample(self) -> None:
        get, model = self.bench.get, self.model
        assert get("head") <= model.head, "the head leads"
        assert get("epoch") == model.epoch
        first = self.dispatcher.inside[0] if self.dispatcher.inside else None
        decides = (first, model.waits(first) if first else None, len(model.admissions))
        same = decides == self._settled and get("head") == model.head
        self._settled, self._settled_cycles = decides, self._settled_cycles + 1 if same else 0
        self._cycles += 1
        if first and self._settled_cycles > 4 and self._cycles > self.bench.geometry.tracker.window_slots + 4:
            assert get("blocked") != model.may_go(first), "another limit than the windows'"
            assert (get("waits_here"), get("waits_there")) == model.waits(first)
        slots = self.bench.geometry.tracker.window_slots
        assert get("busy") or not (self._owed or self._cycles < slots), "idle, with something inside"
        if self._cycles > 3:
            assert get("limit") == self._end
        self._end = get("head") + min(model.window, slots)
        if len(self._heads) == 3 and self._cycles > slots + 3 and self._heads[-1][0] < self._heads[0][1]:
            assert get("head") == self._heads[-1][0] + 1, "the head waits, with its tiles complete"
        # Of two in one cycle, that of the request is shown.
        wrong, self.of_request, self.of_completion = self.of_request or self.of_completion, None, None
        completion = get("completion")
        if completion["valid"]:
            if completion["wg"] in model.left:
                assert get("foreign") == model.foreign(completion["wg"], completion["wf"])
            name = model.completed(completion["wg"], completion["wf"])
            details = {field: value for field, value in completion.items() if field != "valid"}
            self.of_completion = (name, details) if name else None
        if wrong:
            self._expect(wrong)
        self._owed = not model.idle or bool(self.dispatcher.inside) or bool(completion["valid"])
        self._heads.append((get("head"), model.head))

    def _expect(self, wrong: tuple[str, dict]) -> None:
        name, details = wrong
        self.errors.expect({"code": ERRORS[name.lower()], "details": details})

    def reset(self) -> None:
        self._heads.clear()

    async def restart(self) -> None:
        """Start a new kernel here, of which the peers hear later."""
        epoch = self.model.epoch ^ 1 << self.bench.rng.randrange(EPOCH_BITS)
        self.dispatcher.withdraw()
        self.bench.set("restart", 1)
        self.bench.set("next_epoch", epoch)
        self.bench.set("completion", {"valid": 0})
        self.upcoming = None
        await self.bench.settle(drive=False)
        self.dispatcher.sample()  # what goes by itself is of the old kernel, and reported if it is wrong
        await self.bench.edge(sample=False)
        self.bench.set("restart", 0)
        self.bench.set("next_epoch", self.bench.rng.getrandbits(EPOCH_BITS))
        self.dispatcher.reset()
        self.admissions.withdrawn()
        self.errors.reset()
        wrong, self.of_request, self.of_completion = self.of_request or self.of_completion, None, None
        if wrong:  # of this cycle and the one before: still reported
            self._expect(wrong)
        self._cycles, self._owed = 0, False
        self._heads.clear()
        self.model.restart(epoch)


def requests(bench: Bench, count: int, window: int, wrong: float) -> Iterator[Request]:
    """Draw requests of ids 0 to `count` - 1 in a lawful order.

    Some of them come ahead of others that open none, or an id again.
    """
    rng, t, peers = bench.rng, bench.geometry.tracker, bench.geometry.dma.peers
    window = max(1, min(window, t.window_slots))
    opened = []

    def of(one: int, opens: bool) -> Request:
        tiles = rng.choice((0, 1, 1 << t.wf_bits, rng.randrange(2 << t.wf_bits)))
        there = max(0, min(one + rng.randrange(-4, window), (2 << t.wg_bits) - 1))
        return Request(one, tiles, there, rng.randrange(peers), int(opens), rng.randrange(2), int(rng.random() < 0.8),
                       *(rng.randrange(bench.geometry.dma.regions) for _ in range(2)))
    for one in lawful_order(rng, count, window):
        while rng.random() < 0.2:
            yield of(rng.choice((one, rng.getrandbits(t.wg_bits))), opens=False)._replace(
                there=rng.randrange(count + window))
        if opened and rng.random() < wrong:
            yield of(rng.choice((opened[-1], rng.choice(opened))), opens=True)
        opened.append(one)
        yield of(one, opens=True)


@rounds(12)
async def random_requests(bench: Bench) -> None:
    """Run random kernels with restarts; compare starts, heads, updates and errors with the model per cycle.

    The head passes a finished id in the third cycle at the latest, one id per cycle. A request that starts no workgroup
    goes when each wavefront tile has been admitted by one byte in the right region, so its tile is not complete sooner.
    """
    rng, t, peers = bench.rng, bench.geometry.tracker, bench.geometry.dma.peers
    window = rng.choice((1, 3, t.window_slots, (2 << t.wg_bits) - 1))
    model = DispatchWindowModel(t, window, [0] * peers, [0] * peers)
    bench.set("window", window)
    wrong, count = rng.choice((0.0, 0.05)), min(rng.choice((100, 300)), 1 << t.wg_bits)
    environment = Environment(bench, model, wrong)
    environment.peer_end = min(count + t.window_slots, (2 << t.wg_bits) - 1)
    dispatcher = environment.dispatcher
    PulseMonitor(bench, "error", environment.errors.check)
    for _ in range(3):  # kernels; all but the last are cut short
        await bench.cycle(rng.randrange(4))
        dispatcher.send_all(requests(bench, count, window, wrong))
        await bench.cycle(t.window_slots + rng.randint(1, 100))
        await environment.restart()
    await bench.cycle(rng.randrange(4))
    dispatcher.send_all(requests(bench, count, window, wrong))
    environment.wrong /= 2
    if await bench.run(lambda: dispatcher.idle and model.idle, 60_000, settle=count + 8):
        environment.wrong = 0
        await bench.cycle(4)
        environment.errors.check_empty()
        assert model.head == count == bench.get("head") and not bench.get("busy")
        assert wrong or not environment.errors.matched


@rounds(1)
async def one_workgroup_per_cycle(bench: Bench) -> None:
    """Start empty workgroups; the window lets one go in every cycle."""
    t = bench.geometry.tracker
    bench.set("window", t.window_slots)
    dispatcher, count = Dispatcher(bench, pauses=never), min(100, 1 << t.wg_bits)
    dispatcher.send_all(Request(wg) for wg in range(count))
    await bench.until(lambda: dispatcher.idle, t.window_slots + (count if t.window_slots >= 4 else 4 * count) + 8)
