"""Egress against its model: lines become packets addressed for their destination, or errors."""

from t3sim.reference.address_generator import LineError
from t3sim.reference.egress import SOURCE_DMA, SOURCE_LOCAL, Packet, packets_of

from .bench import Bench, rounds
from .drivers import StreamDriver
from .monitors import CycleMonitor, PulseMonitor, StreamMonitor
from .scoreboard import Scoreboard


@rounds(8)
async def random_lines(bench: Bench) -> None:
    rng, g = bench.rng, bench.geometry
    layout = bench["descriptors[0]"]
    descriptors = [layout.unpack(rng.getrandbits(layout.width)) | {"op": rng.choice((1, 2))}
                   for _ in range(g.dma.regions)]
    for region, descriptor in enumerate(descriptors):
        bench.set(f"descriptors[{region}]", descriptor)
    packets, errors = Scoreboard("packets"), Scoreboard("errors")
    refused: list[int] = []  # sources of the lines that errors are due for
    sent: list[Packet | LineError] = []  # what became of the lines
    forget = bench.number % 4 == 2  # of such a round the first half
    bench.set("forget", int(forget))

    def accepted(line: dict) -> None:
        if bench.get("forget"):
            return
        for result in packets_of(line, descriptors, g):
            (packets if isinstance(result, Packet) else errors).expect(result)
            if not isinstance(result, Packet):
                refused.append(line["source"])
            sent.append(result)

    def told(error: dict) -> None:
        errors.check({"code": error["code"], **error["details"]})
        assert bench.get("refused_dma") == (refused.pop(0) == SOURCE_DMA)

    def busy() -> None:
        if not bench.get("forget"):
            assert bench.get("error")["valid"] or not bench.get("refused_dma")
            assert bench.get("busy") == (not packets.empty or not errors.empty)

    CycleMonitor(bench, busy)
    lines = StreamDriver(bench, "line", on_accept=accepted)
    StreamMonitor(bench, "packet", packets.check)
    PulseMonitor(bench, "error", told)
    for number in range(300):
        if number == 150 and forget and bench.cut is None:
            await bench.until(lambda: lines.idle and not bench.get("busy"), 20_000)
            assert not packets.matched and not errors.matched
            bench.set("forget", 0)
        region = rng.randrange(g.dma.regions)
        source = rng.choice((SOURCE_LOCAL, SOURCE_DMA)) if rng.random() < 0.8 else rng.randrange(3)
        lines.send({"address": rng.getrandbits(g.tracker.address_bits), "bytes": rng.randint(1, 64),
                    "op": rng.randrange(3), "source": source, "region": region,
                    "wf": rng.getrandbits(g.tracker.wf_bits), "wg": rng.getrandbits(g.tracker.wg_bits)})
    if await bench.run(lambda: lines.idle and packets.empty and errors.empty, 20_000):
        assert packets.matched + errors.matched == len(sent) >= (150 if forget else 300)


@rounds(2)
async def what_is_forgotten_is_no_error(bench: Bench) -> None:
    """Begin and cease to forget in any cycle: a line that its region lets go leaves, or vanishes without a word."""
    rng, g = bench.rng, bench.geometry
    layout = bench["descriptors[0]"]
    for region in range(g.dma.regions):
        descriptor = layout.unpack(rng.getrandbits(layout.width)) | {"op": 1, "send_stores": 1, "send_dma": 1}
        bench.set(f"descriptors[{region}]", descriptor)
    packets: list[dict] = []
    lines = StreamDriver(bench, "line")
    StreamMonitor(bench, "packet", packets.append)

    def silent() -> None:
        assert not bench.get("error")["valid"]
        bench.set("forget", int(rng.random() < 0.3))

    CycleMonitor(bench, silent)
    for _ in range(300):
        lines.send({"address": rng.getrandbits(g.tracker.address_bits), "bytes": rng.randint(1, 64), "op": 0,
                    "source": rng.choice((SOURCE_LOCAL, SOURCE_DMA)), "region": rng.randrange(g.dma.regions),
                    "wf": rng.getrandbits(g.tracker.wf_bits), "wg": rng.getrandbits(g.tracker.wg_bits)})
    if await bench.run(lambda: lines.idle and not bench.get("busy"), 20_000):
        assert len(packets) > 50
