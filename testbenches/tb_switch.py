"""Switch against its model: sums and copies between GPUs that spend credits and give them back when they like."""

from collections import Counter, deque
from itertools import combinations, cycle, repeat

from t3sim.rtl.registers import SWITCH_COUNTERS, SWITCH_ERRORS, SWITCH_TIMEOUT_BITS, switch_registers
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import ApbDriver
from t3sim.testbenches.monitors import CycleMonitor
from t3sim.testbenches.reference.nmc_alu import AluDtype
from t3sim.testbenches.reference.switch import SwitchModel
from t3sim.testbenches.tb_merge_table import random_request

#: 0 to 15 in fp16, bf16 and fp32; sums of a hundred of them are exact in the first and the last
_SMALL = {AluDtype.FP16: [0, *(0x3C00 + 0x400 * (n.bit_length() - 1) | (n << 10 - n.bit_length() + 1) & 0x3FF
                               for n in range(1, 16))],
          AluDtype.FP32: [0, *(0x3F800000 + 0x800000 * (n.bit_length() - 1) | (n << 23 - n.bit_length() + 1) & 0x7FFFFF
                               for n in range(1, 16))]}


#: Counters of what a table does: its name there, and what it changes in the sums that the table holds if none is whole
#: with a single part.
_EVENTS = {"begun": ("begins", 1), "joined": ("joins", 0), "completed": ("completes", -1), "refused": ("refuses", 0),
           "evicted": ("evicts", -1), "expired": ("expires", -1)}


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


def random_packet(bench: Bench, line: int, epochs: tuple[int, ...] = (1,), nobody: bool = False) -> dict:
    """Draw a part for one or more ports, or a packet that is none; with `nobody` now and then for none.

    A part is of all of its line or, at times, of bytes in it; of the first kernel or, at times, of another one. What is
    no part has any number of bytes.
    """
    rng, g = bench.rng, bench.geometry
    dtype = rng.choice((AluDtype.FP16, AluDtype.FP16, AluDtype.FP32))
    width = 32 if dtype == AluDtype.FP32 else 16
    adds = rng.random() < 0.7
    column = (sum(rng.choice(_SMALL[dtype]) << at for at in range(0, 8 * g.switch.packet_bytes, width)) if adds
              else rng.getrandbits(8 * g.switch.packet_bytes))
    offset = rng.randrange(g.switch.packet_bytes) if rng.random() < 0.1 else 0
    said = request(bench, (line << g.switch.packet_shift) + offset, 2 if adds else rng.randrange(2))
    if not adds:
        said["bytes"] = rng.getrandbits(g.channel.byte_count_bits)
    elif rng.random() < 0.9:
        said["bytes"] = g.switch.packet_bytes - offset
    said["region"] = 0 if not adds and rng.random() < 0.5 else said["region"]  # a word of a command queue
    epoch = rng.choice(epochs) if rng.random() < 0.1 else epochs[0]
    to = 1 << rng.randrange(g.switch.ports)
    if rng.random() < 0.3:
        to = rng.getrandbits(g.switch.ports) or (0 if nobody else to)
    packet = {"request": said, "epoch": epoch, "dtype": int(dtype), "parts": 1 if adds else 0, "column": column}
    return {"packet": packet, "to": to}


def later(epoch: int, by: int) -> int:
    """Return the number of the kernel that comes so many after another."""
    return (epoch - 1 + by) % 255 + 1


async def configure(bench: Bench, whole: int, timeout: int, epoch: int = 1) -> None:
    """Write the settings when the tables are swept."""
    await bench.until(lambda: not bench.get("busy"), bench.geometry.switch.merge_sets + 4)
    registers = switch_registers(bench.geometry)
    await ApbDriver(bench, "apb.").write_all([
        (registers[name].offset, value) for name, value in (("WHOLE", whole), ("TIMEOUT", timeout), ("EPOCH", epoch))])


@rounds(6, cover=("merged",))
async def random_packets(bench: Bench) -> None:
    """Send parts, copies and stray packets of two kernels, with credits late or in bursts; compare with the model."""
    rng, g = bench.rng, bench.geometry
    whole, timeout, epoch = rng.randint(2, min(4, g.most_parts)), rng.choice((3, 20)), rng.randint(1, 255)
    model = SwitchModel(g, whole)
    await configure(bench, whole, timeout, epoch)
    gpus = [Gpu(bench, port, model) for port in range(g.switch.ports)]
    first = rng.getrandbits(g.tracker.address_bits - g.switch.packet_shift - 1)
    epochs = (epoch, *(later(epoch, by) for by in (1, 127, rng.randint(1, 127))))
    for gpu in gpus:  # each sends a part of a line once, about when the others do
        lines = sorted(range(first, first + 120), key=lambda line: line + rng.random() * rng.choice((2, 20)))
        gpu.waiting.extend(random_packet(bench, line, epochs, bench.number % 4 == 0) for line in lines)
    holds, happened = [0] * g.switch.ports, Counter()

    def watch() -> None:
        """Look at what each table says of itself."""
        for port in range(g.switch.ports):
            event = bench.get(f"happened[{port}]")
            assert bench.get(f"holds[{port}]") == holds[port], f"port {port} holds {holds[port]}"
            kinds = [name for name, (one, _) in _EVENTS.items() if event[one]]
            line = event["address"] >> g.switch.packet_shift
            assert not kinds or len(kinds) == 1 and 0 <= line - first < 120, event
            holds[port] += sum(_EVENTS[name][1] for name in kinds)
            happened.update(kinds)

    CycleMonitor(bench, watch)
    nowhere = sum(not item["to"] for gpu in gpus for item in gpu.waiting)
    silent = 1_000 + 3 * timeout * g.switch.merge_sets  # sums that wait leave within two rounds of looks
    if await bench.run(lambda: all(gpu.idle for gpu in gpus) and model.empty, 100_000, settle=20, patience=silent):
        model.check_sums()
        bench.reach("merged", model.merged > 0)
        assert not bench.get("busy") and not any(bench.get(f"holds[{port}]") for port in range(g.switch.ports))
        counts = {name: bench.get(f"counters[{number}]") for number, (name, _) in enumerate(SWITCH_COUNTERS)}
        assert counts["arrived"] == sum(gpu.sent for gpu in gpus) and counts["left"] == sum(gpu.got for gpu in gpus)
        assert not counts["refused"] and not counts["dropped"]
        assert all(counts[name] == happened[name] for name in _EVENTS)
        assert counts["joined"] + counts["completed"] == model.merged
        assert bench.get("error") == bool(nowhere)


@rounds(4)
async def kernels_over(bench: Bench) -> None:
    """Send packets of kernels that are over and of running ones: only the latter leave, the others are counted."""
    rng, g = bench.rng, bench.geometry
    epoch, model = rng.randint(1, 255), SwitchModel(g, 1)
    await configure(bench, 1, 20, epoch)
    lasting = {later(epoch, by) for by in range(128)}
    sent = model.arrive
    model.arrive = lambda port, bound: bound["packet"]["epoch"] in lasting and sent(port, bound)
    gpus = [Gpu(bench, port, model) for port in range(g.switch.ports)]
    for gpu in gpus:
        gpu.hurry()
        for line in range(100):
            bound = random_packet(bench, line)
            bit = 1 << rng.randrange(8)
            by = rng.choice((0, 127, 128, bit, bit, 255 - bit, rng.randrange(255)))
            bound["packet"]["epoch"] = later(epoch, by) if rng.random() < 0.9 else 0
            gpu.waiting.append(bound)
    over = sum(item["to"].bit_count() for gpu in gpus for item in gpu.waiting if item["packet"]["epoch"] not in lasting)
    if await bench.run(lambda: all(gpu.idle for gpu in gpus) and model.empty, 100_000, settle=20):
        counts = {name: bench.get(f"counters[{number}]") for number, (name, _) in enumerate(SWITCH_COUNTERS)}
        assert counts["dropped"] == over and counts["left"] == sum(gpu.got for gpu in gpus)
        assert not bench.get("busy") and bench.get("error")


@rounds(1)
async def settings(bench: Bench) -> None:
    """Write possible and impossible values to each setting; the impossible ones are errors and change nothing."""
    rng, g, registers = bench.rng, bench.geometry, switch_registers(bench.geometry)
    bus = ApbDriver(bench, "apb.")
    epoch = rng.randint(1, 255)
    await configure(bench, 1, 1, epoch)
    await bench.until(lambda: not bench.get("busy"), 8 * g.switch.merge_sets + 20)
    for name, lawful, values in (
            ("WHOLE", range(1, g.most_parts + 1), [*range(g.most_parts + 2), g.most_parts + 1]),
            ("TIMEOUT", range(1, 1 << SWITCH_TIMEOUT_BITS), [0, *(1 << bit for bit in range(16)), 0xFFFF, 0x10000]),
            ("EPOCH", {later(epoch, by) for by in range(128)},
             [0, 256, *(later(epoch, by) for by in (128, 129, 253, 254, *(254 - (1 << bit) for bit in range(7)), 0))])):
        offset, held = registers[name].offset, await bus.read(registers[name].offset)
        high = [rng.choice(values) | 1 << bit for bit in range(17, 32)]
        for value in rng.sample([*values, *high], len(values) + len(high)):
            refused = value not in lawful
            assert (await bus.transfer(offset, value))[0] == refused, f"{name} {value:#x}"
            held = held if refused else value
            assert await bus.read(offset) == held, f"{name} {value:#x}"
            assert bench.get("error") == refused
            if refused:
                assert await bus.read(registers["ERROR"].offset) == SWITCH_ERRORS["setting"]
                await bus.write_all([(registers["CONTROL"].offset, 1)])
                await bench.cycle()
    held = await bus.read(registers["TIMEOUT"].offset)
    for psel, penable in ((1, 0), (0, 1)):  # no transfer
        for name, value in (("psel", psel), ("penable", penable), ("pwrite", 1), ("pwdata", held ^ 1),
                            ("paddr", registers["TIMEOUT"].offset)):
            bench.set(f"apb.{name}", value)
        await bench.cycle(3)
        bench.set("apb.psel", 0)
        bench.set("apb.penable", 0)
        await bench.cycle()
        assert await bus.read(registers["TIMEOUT"].offset) == held, f"psel {psel}, penable {penable}"
    for register in registers.fixed:
        fields = {field.name: field.decode(await bus.read(register.offset)) for field in register.fields}
        if register.name in ("ID", "VERSION", "GEOMETRY"):
            assert fields == {field.name: field.reset for field in register.fields}
        if register.access == "ro":
            assert (await bus.transfer(register.offset, 0))[0], f"{register.name} can be written"
    for by in (127, 1, *(1 << bit for bit in range(7)), *(1 << bit for bit in range(7))):  # forward, around the circle
        epoch = later(epoch, by)
        for _ in range(2):  # the same number asks for a flush, too
            await bench.until(lambda: not bench.get("busy"), 8 * g.switch.merge_sets + 20)
            await bus.write_all([(registers["EPOCH"].offset, epoch)])
            await bench.settle()
            assert bench.get("busy"), "no flush"
            assert await bus.read(registers["EPOCH"].offset) == epoch


@rounds(2)
async def turns(bench: Bench) -> None:
    """Send sums and copies to a GPU that returns credits slowly: at most two of a kind leave in a row."""
    rng, g = bench.rng, bench.geometry
    whole, shift = 1, g.switch.packet_shift
    model, left = SwitchModel(g, whole), []
    await configure(bench, whole, 1)
    gpus = [Gpu(bench, port, model) for port in range(g.switch.ports)]
    adds, copies = rng.sample(gpus, 2)
    to, first = rng.randrange(g.switch.ports), rng.getrandbits(8)  # each part is a sum
    gpus[to].slow(8)
    for gpu in (adds, copies):
        gpu.hurry()
    leave = model.leave
    model.leave = lambda port, packet: (left.append(packet["request"]["op"]), leave(port, packet))
    for number in range(30 + 2 * g.switch.buffer_packets):
        for gpu, op in ((adds, 2), (copies, 1)):
            packet = random_packet(bench, first + number)["packet"]
            packet["request"] = request(bench, first + number << shift, op)
            gpu.waiting.append({"packet": packet | {"parts": int(op == 2)}, "to": 1 << to})
    silent = 1_000 + 8 * g.switch.buffer_packets
    if await bench.run(lambda: all(gpu.idle for gpu in gpus) and model.empty, 100_000, patience=silent):
        middle = "".join(map(str, left[g.switch.buffer_packets + 4:-g.switch.buffer_packets - 4]))
        assert "222" not in middle and "111" not in middle, middle


@rounds(4)
async def sources(bench: Bench) -> None:
    """Let all GPUs, or any two, copy to one that takes slowly: each gets as many turns."""
    g = bench.geometry
    model = SwitchModel(g, 2)
    await configure(bench, g.most_parts, 1_000)
    gpus = [Gpu(bench, port, model) for port in range(g.switch.ports)]
    for gpu in gpus:
        gpu.slow(3)
    senders = [gpus, *combinations(gpus, 2)][bench.number // 2 % (1 + len(gpus) * (len(gpus) - 1) // 2)]
    for gpu in senders:
        gpu.hurry()
        for number in range(1_000):
            packet = random_packet(bench, number)["packet"]
            packet["request"] = request(bench, number << g.switch.packet_shift, 1)
            gpu.waiting.append({"packet": packet | {"parts": 0}, "to": 1 << number % g.switch.ports})
    await bench.cycle(3_000)
    sent = [gpu.sent for gpu in senders]
    assert max(sent) <= min(sent) + g.switch.buffer_packets, f"packets sent: {sent}"


@rounds(4)
async def errors(bench: Bench) -> None:
    """Cause each error at each port, and two at once; details stay until cleared. A silent GPU is named."""
    rng, g, registers = bench.rng, bench.geometry, switch_registers(bench.geometry)
    bus, shift = ApbDriver(bench, "apb."), g.switch.packet_shift
    line, number = rng.getrandbits(g.tracker.address_bits - shift), rng.randint(1, 255)

    async def read(name: str) -> dict[str, int]:
        word = await bus.read(registers[name].offset)
        return {field.name.removeprefix("error_"): field.decode(word) for field in registers[name].fields}

    async def error(name: str, at: int, source: int, epoch: int, address: int, wait: int = 40,
                    several: bool = False) -> None:
        await bench.cycle(wait)
        assert bench.get("error")
        told = await read("ERROR") | await read("ERROR_ADDRESS_LO") | await read("ERROR_ADDRESS_HI")
        assert told == {"code": SWITCH_ERRORS[name], "port": at, "source": source, "epoch": epoch,
                        "address_lo": address & 0xFFFFFFFF, "address_hi": address >> 32}, told
        assert (await read("STATUS"))["overflow"] == several
        await bus.write_all([(registers["CONTROL"].offset, 1)])
        await bench.cycle()
        assert not bench.get("error")
        assert not any([await bus.read(registers[name].offset) for name in ("ERROR", "ERROR_ADDRESS_LO")])

    async def send(*sources: int, **bound) -> None:
        request = {"address": line << shift, "bytes": bound.get("bytes", 4), "op": bound.get("op", 2), "region": 1}
        packet = {"request": request, "parts": bound.get("parts", 1), "dtype": 0, "column": 5,
                  "epoch": bound.get("epoch", number)}
        payload = {"to": bound.get("to", 1 << to), "packet": packet}
        for source in sources:
            bench.set(f"arriving[{source}]", {"valid": 1, "payload": payload})
        await bench.cycle()
        for source in sources:
            bench.set(f"arriving[{source}]", 0)

    if bench.cut is not None:
        return
    to, port = 0, 0
    await configure(bench, g.most_parts, 0xFFFF, number)
    for done, to in enumerate(rng.sample(range(g.switch.ports), g.switch.ports), start=1):
        port = rng.choice([one for one in range(g.switch.ports) if one != to])
        bench.set(f"taken[{to}]", 1)
        await bench.cycle()
        bench.set(f"taken[{to}]", 0)
        await error("excess", to, 0, 0, 0)
        await send(port, to=0)
        await error("nowhere", port, port, number, line << shift)
        await send(port, to, to=0)
        await error("nowhere", min(port, to), min(port, to), number, line << shift, several=True)
        for wrong in ({"parts": 0}, {"bytes": 0}, {"bytes": g.switch.packet_bytes + 1}):
            await send(port, **wrong)
            await error("refused", to, port, number, line << shift)
        await send(port)
        await bench.cycle(40)
        assert not bench.get("error")
        await send(port)
        await error("repeated", to, port, number, line << shift)
        await send(port, op=1, epoch=0)
        await error("stale", to, 0, 0, line << shift)
        assert (await bus.transfer(registers["TIMEOUT"].offset, 0))[0]
        await error("setting", 0, 0, 0, registers["TIMEOUT"].offset)
        await bus.write_all([(registers["EPOCH"].offset, later(number, 1))])  # what waits is of a kernel that is over
        await error("stale", to, 0, number, line << shift, 40 + 20 * g.switch.merge_sets)
        number = later(number, 1)

        # Nobody gives credits back: one packet too many is lost, and the GPU is named until its port is restored.
        for _ in range(4 * g.switch.buffer_packets + 12):
            await send(port, op=1)
        await error("overrun", port, port, number, line << shift, several=True)
        assert await bus.transfer(registers["WHOLE"].offset, 1) == (1, g.most_parts)
        await error("setting", 0, 0, 0, registers["WHOLE"].offset)
        words = range(0, g.switch.ports, 32)
        assert not any([await bus.read(registers[f"STARVED{first // 32}"].offset) for first in words])  # not yet
        await bus.write_all([(registers["TIMEOUT"].offset, 8)])
        await bench.cycle(20)
        starved = [await bus.read(registers[f"STARVED{first // 32}"].offset) for first in words]
        assert starved == [1 << to - first if first <= to < first + 32 else 0 for first in words]
        assert bench.get("busy") and (await read("STATUS"))["starved"]
        for _ in range(4):
            await bus.write_all([(registers[f"RESTORE{to // 32}"].offset, 1 << to % 32)])
            await bench.cycle(g.switch.buffer_packets + 20)
        assert not bench.get("busy") and not (await read("STATUS"))["starved"]
        await bus.write_all([(registers["TIMEOUT"].offset, 0xFFFF)])
        assert await bus.read(registers["COUNT_REFUSED"].offset) == 4 * done
        assert await bus.read(registers["COUNT_DROPPED"].offset) == 2 * done
