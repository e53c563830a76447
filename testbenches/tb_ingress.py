"""Ingress against its model: lawful packets pass at once, all others are taken and reported."""

from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.reference.ingress import OpenRange, is_lawful

_WAYS = ("address", "bytes", "op", "source", "region", "wf", "wg")  #: in which a packet can be made unlawful


def random_ranges(bench: Bench) -> list[OpenRange]:
    """Draw ranges of a few lines, or of everything; each open to random regions."""
    rng, g = bench.rng, bench.geometry
    ranges = []
    for _ in bench.elements("base"):
        base = rng.getrandbits(g.tracker.address_bits)
        last = min((1 << g.tracker.address_bits) - 1, base + rng.choice((0, 63, 64, 300, 1 << 20)))
        if rng.random() < 0.1:
            base, last = 0, (1 << g.tracker.address_bits) - 1
        ranges.append(OpenRange(frozenset(region for region in range(g.dma.regions) if rng.random() < 0.5), base, last))
    return ranges


def random_packet(bench: Bench, ranges: list[OpenRange], window: range, tiles: int) -> dict:
    """Draw a packet at the borders of what is open; lawful but for at most one of its fields, more often than not."""
    rng, g = bench.rng, bench.geometry
    top, ids = (1 << g.tracker.address_bits) - 1, (1 << g.tracker.wg_bits) - 1
    opened = rng.choice(ranges)
    wrong = rng.choice((None, None, *_WAYS))
    address = rng.choice((opened.base, opened.last, rng.randint(opened.base, opened.last)))
    if wrong == "address":
        address = rng.choice((address + rng.randint(-130, 130), address ^ 1 << rng.randrange(g.tracker.address_bits)))
    head, end = window.start, window.stop
    wg = rng.choice((head, end - 1, rng.randint(head, max(head, end - 1))))
    if wrong == "wg":
        wg = rng.choice((head - 1, end, wg ^ 1 << rng.randrange(g.tracker.wg_bits)))
    address = min(max(address, 0), top)
    rest = 64 - address % 64  #: of its line
    return {
        "address": address,
        "bytes": rng.choice((0, rest + 1, 127, rng.randrange(128))) if wrong == "bytes" else rng.choice(
            (1, rest, rng.randint(1, rest))),
        "op": rng.choice((0, 3)) if wrong == "op" else rng.choice((1, 2)),
        "source": rng.choice((0, 3)) if wrong == "source" else rng.choice((1, 2)),
        "region": rng.randrange(g.dma.regions) if wrong == "region" or not opened.regions else rng.choice(
            sorted(opened.regions)),
        "wf": min(tiles, (1 << g.tracker.wf_bits) - 1) if wrong == "wf" else rng.randrange(max(1, tiles)),
        "wg": min(max(wg, 0), ids), **bench.other_parts(),
    }


@rounds(20, cover=("passes", "refused", "several refused", "waits", "last of its region"))
async def random_arrivals(bench: Bench) -> None:
    """Send random packets at the borders of open ranges and window; compare passes and errors with the model."""
    rng, g = bench.rng, bench.geometry
    names = bench.elements("arriving")
    told: tuple[int, dict] = (0, {})  #: channels refused in the cycle before, and the first one's packet
    ranges, head, end, tiles = random_ranges(bench), 0, 0, 0
    for cycle in range(bench.cut or 400):
        if cycle % 20 == 0:
            ranges = random_ranges(bench)
            head = rng.choice((0, rng.randrange((1 << g.tracker.wg_bits) + 1)))
            end = min((1 << g.tracker.wg_bits + 2) - 1, head + rng.randrange(
                rng.choice((2 * g.tracker.window_slots, 4 << g.tracker.wg_bits))))
            bench.set("head", head)
            bench.set("limit", end)
            tiles = rng.randint(0, 1 << g.tracker.wf_bits)
            bench.set("tiles", tiles)
            bench.set("any_tile", int(rng.random() < 0.1))
            for i, opened in enumerate(ranges):
                bench.set(f"open[{i}]", sum(1 << region for region in opened.regions))
                bench.set(f"base[{i}]", opened.base)
                bench.set(f"last[{i}]", opened.last)
        packets, refused = [], []
        for c, name in enumerate(names):
            packets.append(random_packet(bench, ranges, range(head, end), tiles))
            bench.set(f"{name}.payload", packets[c])
            bench.set(f"{name}.valid", int(rng.random() < 0.6))
            bench.set(f"accepted[{c}].ready", int(rng.random() < 0.7))
        await bench.settle()
        assert bench.get("refused") == told[0]
        error = bench.get("error")
        assert error["valid"] == (told[0] != 0)
        if told[0]:
            assert error["code"] == 7 and error["details"] == {
                name: told[1][name] for name in ("address", "region", "wf", "wg")}
        for c, (name, packet) in enumerate(zip(names, packets)):
            offered, room = bench.get(f"{name}.valid"), bench.get(f"accepted[{c}].ready")
            lawful = is_lawful(packet, ranges, range(head, end), tiles, bool(bench.get("any_tile")), g)
            assert bench.get(f"{name}.ready") == room
            assert bench.get(f"accepted[{c}].valid") == (offered and lawful), f"{packet} {ranges} [{head}, {end})"
            if offered and lawful:
                assert bench.get(f"accepted[{c}].payload") == packet
            elif offered and room:
                refused.append(c)
            bench.reach("passes", bool(offered and lawful and room))
            bench.reach("waits", bool(offered and not room))
        bench.reach("refused", len(refused) == 1)
        bench.reach("several refused", len(refused) > 1 or len(names) == 1)
        bench.reach("last of its region", any(p["address"] + p["bytes"] - 1 == r.last for p in packets for r in ranges))
        told = sum(1 << c for c in refused), packets[refused[0]] if refused else {}
        await bench.edge()
