"""LineRouter: every line once, at its address's channel, each engine's in order."""

from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.monitors import CycleMonitor, StreamMonitor
from t3sim.testbenches.pauses import never
from t3sim.testbenches.reference.line_router import LineRouterModel


def line(bench: Bench, engine: int, address: int) -> dict:
    """Draw every bit at random that does not say where the line comes from and goes to."""
    rng, g = bench.rng, bench.geometry
    return {"address": address, "bytes": rng.randrange(128), "op": rng.randrange(4), "source": rng.randrange(4),
            "region": rng.randrange(g.dma.regions), "wf": engine % (1 << g.tracker.wf_bits),
            "wg": rng.getrandbits(g.tracker.wg_bits), **bench.other_parts()}


@rounds(8)
async def random_lines(bench: Bench) -> None:
    """Send random lines from 1 to 8 engines; a queue per engine and channel checks place and order."""
    rng, g, model = bench.rng, bench.geometry, LineRouterModel(bench.geometry)
    CycleMonitor(bench, lambda: check_busy(bench, model))
    engines = [StreamDriver(bench, name, on_accept=lambda line, e=e: model.accept(e, line))
               for e, name in enumerate(bench.elements("lines"))]

    def leave(line: dict, channel: int) -> None:
        assert model.leave(channel, line) % (1 << g.tracker.wf_bits) == line["wf"]

    channels = [StreamMonitor(bench, name, on_item=lambda line, c=c: leave(line, c))
                for c, name in enumerate(bench.elements("channels"))]
    bits = rng.choice((8, 12, g.tracker.address_bits))  # 8: all lines for few channels
    for engine, driver in enumerate(engines):
        driver.send_all(line(bench, engine, rng.getrandbits(bits)) for _ in range(100))
    if await bench.run(lambda: all(driver.idle for driver in engines) and not model.inside(), 20_000):
        assert sum(len(channel.items) for channel in channels) == 100 * len(engines)


def check_busy(bench: Bench, model: LineRouterModel) -> None:
    assert bench.get("busy") == bool(model.inside())


@rounds(8)
async def engines_take_turns_at_one_channel(bench: Bench) -> None:
    """Send all engines' lines to one channel: it takes one line per cycle, from each engine in turn."""
    count, served, block = 40, [], bench.rng.getrandbits(12) << 12 | bench.number // 2 << 8
    engines = [StreamDriver(bench, name, never()) for name in bench.elements("lines")]
    for name in bench.elements("channels"):
        StreamMonitor(bench, name, lambda item: served.append(item["wf"]), never())
    for engine, driver in enumerate(engines):
        driver.send_all(line(bench, engine, block + bench.rng.randrange(64)) for _ in range(count))
    if bench.cut is None:
        await bench.until(lambda: len(served) == count * len(engines), count * len(engines) + 4)
        turns = [served[start:start + len(engines)] for start in range(0, len(served), len(engines))]
        assert all(sorted(turn) == list(range(len(engines))) for turn in turns[1:-1]), served
