"""LineRouter: every line once, at its address's channel, each engine's in order."""

from sim_models.reference.line_router import LineRouterModel

from .bench import Bench, rounds
from .drivers import StreamDriver
from .monitors import StreamMonitor


@rounds(8)
async def random_lines(bench: Bench) -> None:
    rng, g, model = bench.rng, bench.geometry, LineRouterModel(bench.geometry)
    engines = [StreamDriver(bench, name, on_accept=lambda line, e=e: model.accept(e, line))
               for e, name in enumerate(bench.elements("lines"))]

    def leave(line: dict, channel: int) -> None:
        assert model.leave(channel, line) == line["wf"]

    channels = [StreamMonitor(bench, name, on_item=lambda line, c=c: leave(line, c))
                for c, name in enumerate(bench.elements("channels"))]
    bits = rng.choice((8, 12, g.tracker.address_bits))  # 8: all lines for few channels
    for engine, driver in enumerate(engines):
        driver.send_all({"address": rng.getrandbits(bits), "bytes": rng.randint(1, 64), "op": 0, "source": 2,
                         "region": rng.randrange(g.dma.regions), "wf": engine, "wg": n % (1 << g.tracker.wg_bits)}
                        for n in range(100))
    if await bench.run(lambda: all(driver.idle for driver in engines) and not model.inside(), 20_000):
        assert sum(len(channel.items) for channel in channels) == 100 * len(engines)
        assert not bench.get("busy")
