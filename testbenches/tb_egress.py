"""Egress against its model: lines become packets addressed for their destinations, or errors."""

from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.mappings import program, random_tables
from t3sim.testbenches.monitors import CycleMonitor, PulseMonitor, StreamMonitor
from t3sim.testbenches.reference.address_generator import LineError
from t3sim.testbenches.reference.egress import SOURCE_DMA, SOURCE_LOCAL, Packet, packets_of
from t3sim.testbenches.scoreboard import Scoreboard, of_one_part


class DmaData:
    """Data that DMA has read, as its credits count them: once, and once more for each pulse of `repeated`."""

    def __init__(self, bench: Bench) -> None:
        self.left = self.repeated = 0
        self.owed = 0  #: packets and refusals that are still to come; whoever knows them adds them
        self._bench, self._several = bench, bench.geometry.dma.copies > 1
        bench.add(self)

    def drive(self) -> None:
        pass

    def sample(self) -> None:
        get = self._bench.get
        entered = get("line.valid") and get("line.ready") and get("line.payload")["source"] == SOURCE_DMA
        left = get("packet.valid") and get("packet.ready") and get("packet.payload")["source"] == SOURCE_DMA
        repeated = get("repeated") if self._several else 0
        self.repeated += repeated
        gone = left + get("refused")
        self.left += entered + repeated - gone
        self.owed -= gone
        assert self.left >= 0, "more has left than was read, or will leave once more"

    def reset(self) -> None:
        pass


def random_line(bench: Bench, source: int, region: int) -> dict:
    rng, t = bench.rng, bench.geometry.tracker
    return {**bench.other_parts(),
            "address": rng.getrandbits(t.address_bits), "bytes": rng.randint(1, 64), "op": rng.randrange(3),
            "source": source, "region": region, "wf": rng.getrandbits(t.wf_bits), "wg": rng.getrandbits(t.wg_bits)}


@rounds(8)
async def random_lines(bench: Bench) -> None:
    """Send random lines of every source through random tables; compare packets, errors and credits with the model."""
    rng, g = bench.rng, bench.geometry
    tables = random_tables(bench)
    program(bench, tables)
    packets, errors = Scoreboard("packets"), Scoreboard("errors")
    refused: list[int] = []  # sources of the lines that errors are due for
    sent: list[Packet | LineError] = []  # what became of the lines
    again = 0  # packets of DMA's data besides the first of each line
    forget = bench.number % 4 == 2  # of such a round the first half
    bench.set("forget", int(forget))

    def accepted(line: dict) -> None:
        nonlocal again
        results = packets_of(line, tables, g)
        if line["source"] == SOURCE_DMA:
            data.owed += 1 if bench.get("forget") else len(results)
        if bench.get("forget"):
            return
        for result in results:
            (packets if isinstance(result, Packet) else errors).expect(result)
            if not isinstance(result, Packet):
                refused.append(line["source"])
            sent.append(result)
        again += len(results) - 1 if line["source"] == SOURCE_DMA else 0

    def told(error: dict) -> None:
        errors.check({"code": error["code"], **error["details"]})
        assert bench.get("refused") == (refused.pop(0) == SOURCE_DMA)

    def busy() -> None:
        assert (data.left > 0) == (data.owed > 0)
        if not bench.get("forget"):
            assert bench.get("error")["valid"] or not bench.get("refused")
            assert bench.get("busy") == (not packets.empty or not errors.empty)

    CycleMonitor(bench, busy)
    lines = StreamDriver(bench, "line", on_accept=accepted)
    data = DmaData(bench)
    StreamMonitor(bench, "packet", lambda packet: packets.check(of_one_part(packet)))
    PulseMonitor(bench, "error", told)
    for number in range(300):
        if number == 150 and forget and bench.cut is None:
            await bench.until(lambda: lines.idle and not bench.get("busy"), 20_000)
            assert not packets.matched and not errors.matched and not data.left and not data.repeated
            bench.set("forget", 0)
        source = rng.choice((SOURCE_LOCAL, SOURCE_DMA)) if rng.random() < 0.8 else rng.randrange(3)
        lines.send(random_line(bench, source, rng.randrange(g.dma.regions)))
    if await bench.run(lambda: lines.idle and packets.empty and errors.empty, 20_000):
        assert packets.matched + errors.matched == len(sent) >= (150 if forget else 300)
        assert data.repeated == again and not data.left


@rounds(2)
async def what_is_forgotten_is_no_error(bench: Bench) -> None:
    """Assert `forget` in any cycle: a legal line leaves or vanishes, perhaps after some routes, without an error."""
    rng, g = bench.rng, bench.geometry
    tables = random_tables(bench)
    for region in tables["region"]:
        route = rng.randrange(g.dma.routes)
        most = min(g.dma.routes - route, 1 << (g.dma.copies - 1).bit_length())
        region |= {"send_stores": 1, "send_dma": 1, "route": route, "more_routes": rng.randrange(most)}
    program(bench, tables)
    due: list[Packet] = []  # whether it vanishes or not
    left = 0

    def leaves(packet: dict) -> None:
        nonlocal left
        left += 1
        sent = Packet(**of_one_part(packet))
        assert sent in due
        del due[:due.index(sent) + 1]

    def silent() -> None:
        assert not bench.get("error")["valid"]
        assert bench.get("busy") or not data.left

    class Forgetting:
        def drive(self) -> None:
            bench.set("forget", int(rng.random() < 0.3))

        def sample(self) -> None:
            pass

        def reset(self) -> None:
            pass

    bench.add(Forgetting())
    CycleMonitor(bench, silent)
    lines = StreamDriver(bench, "line", on_accept=lambda line: due.extend(packets_of(line, tables, g)))
    StreamMonitor(bench, "packet", leaves)
    data = DmaData(bench)
    for _ in range(300):
        lines.send(random_line(bench, rng.choice((SOURCE_LOCAL, SOURCE_DMA)), rng.randrange(g.dma.regions)))
    if await bench.run(lambda: lines.idle and not bench.get("busy"), 20_000):
        assert left > 50 and not data.left


@rounds(2)
async def regions_share_a_route(bench: Bench) -> None:
    """Let all regions use one route, then each the next one; compare every packet."""
    rng, g = bench.rng, bench.geometry
    tables = random_tables(bench)
    first = rng.randrange(g.dma.routes)
    for region in tables["region"]:
        region |= {"route": first, "more_routes": 0, **rng.choice(({"send_stores": 1}, {"send_dma": 1}))}
    packets = Scoreboard("packets")
    lines = StreamDriver(bench, "line", on_accept=lambda line: [
        packets.expect(result) for result in packets_of(line, tables, g)])
    StreamMonitor(bench, "packet", lambda packet: packets.check(of_one_part(packet)))
    for step in range(2):
        for number, region in enumerate(tables["region"]):
            region["route"] = (first + step * number) % g.dma.routes
        program(bench, tables)
        for number, region in enumerate(tables["region"]):
            lines.send(random_line(bench, SOURCE_LOCAL if region["send_stores"] else SOURCE_DMA, number))
        if not await bench.run(lambda: lines.idle and packets.empty and not bench.get("busy"), 2_000):
            return
    assert packets.matched == 2 * g.dma.regions
