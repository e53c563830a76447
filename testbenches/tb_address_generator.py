"""AddressGenerator against its model: exactly a block's lines, errors for those outside the region, credits."""

from t3sim.reference.address_generator import LineError, expand
from t3sim.rtl.registers import REGION_ACTIONS

from .bench import Bench, rounds
from .drivers import StreamDriver
from .monitors import CycleMonitor, PulseMonitor, StreamMonitor
from .scoreboard import Scoreboard


def random_descriptor(bench: Bench) -> dict:
    rng, t = bench.rng, bench.geometry.tracker
    tiles = 1 << rng.randint(0, t.wf_bits)
    base = rng.choice((0, *3 * [rng.getrandbits(t.address_bits)]))
    row_bytes = rng.choice((1, 63, 64, 65, 200, rng.randint(1, 900)))
    chosen = {
        "send_stores": 0, "send_dma": 1, "event": 0, "op": 2, "device": 0, "destination_region": 0,
        "threshold": 0, "wg_offset": 0, "address_offset": 0,
        "tiles_per_block": tiles, "columns": tiles * rng.choice((1, 1, 2, 3)) if tiles < 16 else tiles,
        "row_bytes": row_bytes, "pitch_bytes": rng.choice((0, 64, 333, 4096, rng.getrandbits(32))), "base": base,
        "limit": min(base + rng.choice((1000, 1 << 20, 1 << 36)), (1 << t.address_bits) - 1)}
    fate = rng.random()
    if fate < 0.1:  # many columns
        chosen |= {"columns": rng.randrange(tiles, 1 << 10), "row_bytes": rng.randint(1, 70)}
    elif fate < 0.2:  # long ones
        chosen |= {"columns": tiles, "row_bytes": rng.randrange(1, 1 << 13)}
    if rng.random() < 0.5:  # the block's end is near the region's
        chosen["limit"] = min(base + chosen["pitch_bytes"] * (chosen["columns"] - 1) + chosen["row_bytes"]
                              + rng.randint(-70, 70), (1 << t.address_bits) - 1)
    if rng.random() < 0.3:
        chosen |= {action: rng.randrange(2) for action in REGION_ACTIONS}
    if rng.random() < 0.2:
        chosen[rng.choice(("row_bytes", "columns"))] = 0
    return chosen


@rounds(8)
async def random_blocks(bench: Bench) -> None:
    rng, t = bench.rng, bench.geometry.tracker
    descriptors = [random_descriptor(bench) for _ in range(bench.geometry.dma.regions)]
    for region, descriptor in enumerate(descriptors):
        bench.set(f"descriptors[{region}]", descriptor)
    lines, errors = Scoreboard("lines"), Scoreboard("errors")

    def accepted(item: dict) -> None:
        for each in expand(item, descriptors[item["region"]], bench.geometry):
            (errors if isinstance(each, LineError) else lines).expect(each)

    class Credit:
        """Allows lines at random; a line without permission is an error."""
        pause = bench.pause()

        def drive(self) -> None:
            self.allow = not next(self.pause)
            bench.set("allow", int(self.allow))

        def sample(self) -> None:
            assert self.allow or not bench.get("issued"), "issued without permission"

        def reset(self) -> None:
            pass

    bench.add(Credit())
    CycleMonitor(bench, lambda: None if bench.get("busy") else lines.check_empty())
    commands = StreamDriver(bench, "command", on_accept=accepted)
    StreamMonitor(bench, "lines", lines.check)
    PulseMonitor(bench, "error", lambda error: errors.check({"code": error["code"], **error["details"]}))
    for _ in range(15):
        region = rng.randrange(len(descriptors))
        around = rng.choice((descriptors[region]["base"], descriptors[region]["base"], descriptors[region]["limit"],
                             1 << t.address_bits))
        if rng.random() < 0.2:  # the third column is where the address space begins again
            around = (1 << t.address_bits) - descriptors[region]["pitch_bytes"] - 900
        commands.send({"address": (around + rng.randint(-300, 900)) % (1 << t.address_bits), "region": region,
                       "wf": rng.getrandbits(t.wf_bits), "wg": rng.getrandbits(t.wg_bits)})
    if await bench.run(lambda: commands.idle and lines.empty and errors.empty, 60_000):
        assert not bench.get("busy")
