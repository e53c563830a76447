"""Switch against its model: sums and copies between GPUs that spend credits and give them back when they like."""

from collections import deque
from itertools import combinations, cycle, repeat

from t3sim.reference.nmc_alu import AluDtype
from t3sim.reference.switch import COUNTERS, ERRORS, SwitchModel

from .bench import Bench, rounds
from .tb_merge_table import random_request

#: 0 to 15 in fp16, bf16 and fp32; sums of a hundred of them are exact in the first and the last
_SMALL = {AluDtype.FP16: [0, *(0x3C00 + 0x400 * (n.bit_length() - 1) | (n << 10 - n.bit_length() + 1) & 0x3FF
                               for n in range(1, 16))],
          AluDtype.FP32: [0, *(0x3F800000 + 0x800000 * (n.bit_length() - 1) | (n << 23 - n.bit_length() + 1) & 0x7FFFFF
                               for n in range(1, 16))]}


class Gpu:
    """The far ends of a port's two links."""

    def __init__(self, bench: Bench, port: int, model: SwitchModel) -> None:
        self._bench, self._port, self._model = bench, port, model
        self._names = {name: f"{name}[{port}]" for name in ("arriving", "returned", "leaving", "taken")}
        self._sends, self._takes = bench.pause(), bench.pause()
        self.credits = self._most = bench.geometry.switch.buffer_packets
        self.waiting: deque[dict] = deque()
        self.owed = 0  # credits to give back
        self._offered: dict | None = None
        self.sent = self.got = 0
        bench.add(self)

    def hurry(self) -> None:
        """Send whenever there is a credit."""
        self._sends = repeat(False)

    def slow(self, cycles: int) -> None:
        """Give a credit back in one of this many cycles."""
        self._takes = cycle([False, *[True] * (cycles - 1)])

    def drive(self) -> None:
        goes = not next(self._sends) and self.credits > 0 and len(self.waiting) > 0
        self._offered = self.waiting.popleft() if goes else None
        noise = self._bench.rng.getrandbits(self._bench[self._names["arriving"]].width) & ~1
        self._bench.set(self._names["arriving"], {"valid": 1, "payload": self._offered} if goes else noise)
        gives = not next(self._takes) and self.owed > 0
        self.owed -= gives
        self._bench.set(self._names["taken"], int(gives))

    def sample(self) -> None:
        get = self._bench.get
        self.credits += get(self._names["returned"])
        if self._offered:
            self.credits -= 1
            self.sent += 1
            self._model.arrive(self._port, self._offered)
            self._bench.moved = self._bench.now
        leaving = get(self._names["leaving"])
        if leaving["valid"]:
            self._model.leave(self._port, leaving["payload"])
            self.got += 1
            self.owed += 1
            self._bench.moved = self._bench.now
        assert 0 <= self.credits <= self._most and self.owed <= self._most, f"port {self._port}: credits"

    def reset(self) -> None:
        self._offered = None
        for name in ("arriving", "taken"):
            self._bench.set(self._names[name], 0)

    @property
    def idle(self) -> bool:
        return not self.waiting and self._offered is None and not self.owed and self.credits == self._most


def request(bench: Bench, address: int, op: int) -> dict:
    """Draw what a packet says; a part says nothing of parts."""
    return random_request(bench, address, op) | ({} if op == 2 else bench.other_parts())


def random_packet(bench: Bench, lines: list[int]) -> dict:
    """Draw a part for one or more ports, or a packet that is none; now and then for nobody."""
    rng, g = bench.rng, bench.geometry
    dtype = rng.choice((AluDtype.FP16, AluDtype.FP16, AluDtype.FP32))
    width = 32 if dtype == AluDtype.FP32 else 16
    adds = rng.random() < 0.7
    column = (sum(rng.choice(_SMALL[dtype]) << at for at in range(0, 8 * g.switch.packet_bytes, width)) if adds
              else rng.getrandbits(8 * g.switch.packet_bytes))
    said = request(bench, rng.choice(lines) << g.switch.packet_shift, 2 if adds else rng.randrange(2))
    to = 1 << rng.randrange(g.switch.ports) if rng.random() < 0.7 else rng.getrandbits(g.switch.ports)
    return {"packet": {"request": said, "dtype": int(dtype), "parts": 1 if adds else 0, "column": column}, "to": to}


async def cleared(bench: Bench) -> None:
    """Wait until the tables are swept, in which packets wait for them."""
    await bench.cycle(bench.rng.choice((0, bench.geometry.switch.merge_sets + 1)))


@rounds(6, cover=("merged",))
async def random_packets(bench: Bench) -> None:
    rng, g = bench.rng, bench.geometry
    whole, timeout = rng.randint(2, min(4, (1 << g.switch.part_bits) - 1)), rng.choice((3, 20))
    model = SwitchModel(g, whole)
    bench.set("whole", whole)
    bench.set("timeout", timeout)
    gpus = [Gpu(bench, port, model) for port in range(g.switch.ports)]
    lines = [rng.getrandbits(g.tracker.address_bits - g.switch.packet_shift) for _ in range(
        2 * min(g.switch.merge_sets, 8) * g.switch.merge_ways)]
    await cleared(bench)
    for gpu in gpus:
        gpu.waiting.extend(random_packet(bench, lines) for _ in range(120))
    nowhere = sum(not item["to"] for gpu in gpus for item in gpu.waiting)
    silent = 1_000 + 3 * timeout * g.switch.merge_sets  # sums that wait leave within two rounds of looks
    if await bench.run(lambda: all(gpu.idle for gpu in gpus) and model.empty, 100_000, settle=20, patience=silent):
        model.check_sums()
        bench.reach("merged", model.merged > 0)
        assert not bench.get("busy") and not any(bench.get(f"holds[{port}]") for port in range(g.switch.ports))
        counts = {name: bench.get(f"counters[{number}]") for number, name in enumerate(COUNTERS)}
        assert counts["arrived"] == sum(gpu.sent for gpu in gpus) and counts["left"] == sum(gpu.got for gpu in gpus)
        assert not counts["refused"]
        alone = counts["completed"] + counts["evicted"] + counts["expired"]
        assert counts["begun"] == alone and counts["joined"] + counts["completed"] == model.merged
        assert (bench.get("error")["code"] != 0) == bool(nowhere or counts["expired"])


@rounds(2)
async def turns(bench: Bench) -> None:
    """Send sums and copies to a GPU that gives credits back slowly: they leave in turn."""
    rng, g = bench.rng, bench.geometry
    whole, shift = 2, g.switch.packet_shift
    model, left = SwitchModel(g, whole), []
    bench.set("whole", whole)
    bench.set("timeout", 1_000)
    gpus = [Gpu(bench, port, model) for port in range(g.switch.ports)]
    adds, copies = rng.sample(gpus, 2)
    to, first = rng.randrange(g.switch.ports), rng.getrandbits(8)
    gpus[to].slow(8)
    for gpu in (adds, copies):
        gpu.hurry()
    leave = model.leave
    model.leave = lambda port, packet: (left.append(packet["request"]["op"]), leave(port, packet))
    await cleared(bench)
    for number in range(30 + 2 * g.switch.buffer_packets):
        for gpu, op in ((adds, 2), (copies, 1)):
            packet = random_packet(bench, [first + number])["packet"]
            packet["request"] = request(bench, first + number << shift, op)
            gpu.waiting.append({"packet": packet | {"parts": whole if op == 2 else 0}, "to": 1 << to})
    silent = 1_000 + 8 * g.switch.buffer_packets
    if await bench.run(lambda: all(gpu.idle for gpu in gpus) and model.empty, 100_000, patience=silent):
        middle = "".join(map(str, left[g.switch.buffer_packets + 4:-g.switch.buffer_packets - 4]))
        assert "222" not in middle and "111" not in middle, middle


@rounds(4)
async def sources(bench: Bench) -> None:
    """Let all GPUs, or two, send copies to one that takes them slowly: each gets as many turns as another."""
    g = bench.geometry
    model = SwitchModel(g, 2)
    bench.set("whole", 2)
    gpus = [Gpu(bench, port, model) for port in range(g.switch.ports)]
    to = bench.rng.randrange(g.switch.ports)
    gpus[to].slow(3)
    await cleared(bench)
    senders = [gpus, *combinations(gpus, 2)][bench.number % (1 + len(gpus) * (len(gpus) - 1) // 2)]
    for gpu in senders:
        gpu.hurry()
        for number in range(1_000):
            packet = random_packet(bench, [number])["packet"]
            packet["request"] = request(bench, number << g.switch.packet_shift, 1)
            gpu.waiting.append({"packet": packet | {"parts": 0}, "to": 1 << to})
    await bench.cycle(3_000)
    sent = [gpu.sent for gpu in senders]
    assert max(sent) <= min(sent) + g.switch.buffer_packets, f"packets sent: {sent}"


@rounds(4)
async def errors(bench: Bench) -> None:
    """Each error by itself, with its port and address, kept until it is cleared."""
    rng, g = bench.rng, bench.geometry
    port, shift = rng.randrange(g.switch.ports), g.switch.packet_shift
    line = rng.getrandbits(g.tracker.address_bits - shift)

    async def error(name: str, at: int, address: int, wait: int = 40) -> None:
        await bench.cycle(wait)
        told = bench.get("error")
        assert told == {"code": ERRORS[name], "port": at, "address": address}, told
        bench.set("clear_error", 1)
        await bench.cycle()
        bench.set("clear_error", 0)
        await bench.cycle()
        assert not bench.get("error")["code"]

    async def send(**bound) -> None:
        request = {"address": line << shift, "bytes": 4, "op": bound.pop("op", 2)}
        packet = {"request": request, "parts": bound.get("parts", 1), "dtype": 0, "column": 5}
        bench.set(f"arriving[{port}]", {"valid": 1, "payload": {"to": bound["to"], "packet": packet}})
        await bench.cycle()
        bench.set(f"arriving[{port}]", 0)

    if bench.cut is not None:
        return
    bench.set("whole", 2)
    await bench.cycle(g.switch.merge_sets + 2)
    bench.set(f"taken[{port}]", 1)
    await bench.cycle()
    bench.set(f"taken[{port}]", 0)
    await error("excess", port, 0)
    await send(to=0)
    await error("nowhere", port, line << shift)
    to = rng.randrange(g.switch.ports)
    await send(to=1 << to, parts=3)
    await error("refused", to, line << shift)
    bench.set("timeout", 5)
    await send(to=1 << to)
    await error("expired", to, line << shift, 40 + 12 * g.switch.merge_sets)
    for _ in range(4 * g.switch.buffer_packets + 12):  # nobody gives credits back
        await send(to=1 << to, op=1)
    await error("overrun", port, line << shift)
    assert bench.get("busy")
