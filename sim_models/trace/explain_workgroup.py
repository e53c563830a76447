"""Work of a tile's workgroups; and a workgroup that starts when its inputs, which are tiles, have come."""

import numpy as np

from t3sim.gpu.agents.units.state import STATES
from t3sim.trace.answer import Answer
from t3sim.trace.names import ALONE
from t3sim.trace.roles import devices
from t3sim.trace.schema import COMPLETE, REFUSED, Kind
from t3sim.trace.tile import Tile

STORES = [STATES.index(name) for name in ("store_memory", "store_link")]
IDLE = STATES.index("idle")


def workgroup(tile: Tile, answer: Answer) -> None:
    """Tell when the workgroups of a tile start, store and end."""
    ring = bool(tile.trace.run.get("around_a_ring"))
    there = "downstream" if ring else "at the peer that is furthest behind"
    for e in tile.of(Kind.BLOCKED):
        answer.tell(e["cycle"], f"the dispatch window holds the workgroup{_part(e)} back "
                                f"(window heads: {e['a']} here, {e['b']} {there})")
    for e in tile.of(Kind.DISPATCH):
        answer.tell(e["cycle"], f"the workgroup{_part(e)} starts" + (
            f" on compute unit {e['unit']}" if e["a"] >= 0 else ""))
    stages = tile.of(Kind.STAGE)
    stores = stages[np.isin(stages["b"], STORES)]
    for part in np.unique(stores["c"]):
        e = stores[stores["c"] == part][0]
        whose = "its" if part == ALONE else f"part {part}'s"
        answer.tell(e["cycle"], f"{whose} K loop is done: the tile's stores begin")
    for e in stages[stages["b"] == IDLE]:
        answer.tell(e["cycle"], f"the workgroup{_part(e)} has ended")


def _part(e) -> str:
    return "" if e["c"] == ALONE else f" of part {e['c']}"


def explain_consumer(tile: Tile, answer: Answer) -> None:
    """Explain when a workgroup started whose inputs are tiles, for which it waited, or whose columns are of several."""
    trace, consumer = tile.trace, tile.consumer
    gathers = trace.run["group_tiles"] is not None
    which = "starts when its inputs have come, makes" if gathers else "stores columns at several owners, makes"
    answer.subject = (f"device {tile.number}, workgroup {tile.wg}: of the GEMM, {which} "
                      f"rows {consumer.m0} to {consumer.m0 + consumer.rows - 1}, columns {consumer.n0} to "
                      f"{consumer.n0 + consumer.columns - 1} of its output")
    workgroup(tile, answer)
    started = tile.of(Kind.DISPATCH)
    at = f"It started at cycle {int(started['cycle'][0]):,}" if len(started) else "It has not started"
    if not gathers:
        answer.conclude(f"{at}. Each of its columns is an expert's output of a token, and is stored at its owner.")
        return
    if not consumer.waits_for:
        answer.conclude(f"{at}; its inputs are this GPU's own, in memory from the start.")
        return
    tiles = [Tile(trace, wg, wf, tile.device) for wg in consumer.waits_for for wf in range(trace.run["wavefronts"])]
    tiles = [one for one in tiles if one.place.columns]
    updates = trace.events[(trace.events["kind"] == Kind.UPDATE) & (trace.events["device"] == tile.device)]
    done = {(int(e["wg"]), int(e["wf"])): int(e["cycle"])
            for e in updates[((updates["flags"] & COMPLETE) != 0) & ((updates["flags"] & REFUSED) == 0)]}
    missing = [one for one in tiles if (one.wg, one.wf) not in done]
    first, last = consumer.waits_for[0], consumer.waits_for[-1]
    who = devices(sorted({number for one in tiles for number in trace.map.from_devices(one.id)}))
    group = f"tiles {first} to {last}" if last > first else f"tile {first}"
    for (wg, wf), cycle in done.items():
        if wg in consumer.waits_for:
            answer.tell(cycle, f"its input tile of workgroup {wg}, wavefront {wf} is complete")
    if missing:
        names = f"workgroup {missing[0].wg}, wavefront {missing[0].wf}"
        answer.conclude(f"{at}: of its inputs, {group} from {who}, {len(missing)} of {len(tiles)} wavefront tiles have "
                        f"not been seen complete, such as {names}.")
    else:
        latest = max(done[one.wg, one.wf] for one in tiles)
        answer.conclude(f"{at}: of its inputs {group} came last, from {who}; they were complete at cycle {latest:,}.")
