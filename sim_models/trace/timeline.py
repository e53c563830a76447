"""A trace as a Perfetto timeline: what units, engines and the link do as tracks, queues as counters, and arrows.

An arrow goes from each tile's trigger over its DMA command and its first packet to its arrival.

Opens in https://ui.perfetto.dev. Times are in ns; one group of tracks per GPU.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from t3sim.base.output import whole_file
from t3sim.base.perfetto_writer import TimelineWriter
from t3sim.gpu.setup import STATES
from t3sim.trace.output_map import TileId
from t3sim.trace.schema import ALLOCATED, COMPLETE, EXCEEDS, SOURCES, Kind
from t3sim.trace.store import TIMELINE, Trace
from t3sim.trace.words import joined

_IDLE = STATES.index("idle")
_FROM_DMA = SOURCES.index("dma")


def write_timeline(trace: Trace) -> Path:
    """Write the Perfetto trace of all that was recorded, beside it; gives the file."""
    path = trace.folder / TIMELINE
    with whole_file(path, "wb") as file:
        out = TimelineWriter(file, 1 / trace.run["clock_ghz"])
        run = out.track(trace.title)
        gpus = [out.track(f"GPU {device}", run) for device in trace.run["numbers"]]
        links = [out.track("link", gpu) for gpu in gpus]
        arrivals = [out.track("arrivals", gpu) for gpu in gpus]
        for device, gpu in enumerate(gpus):
            e = trace.of(None, device)
            _units(out, gpu, e, trace)
            _tracker(out, gpu, device, e, trace.window[0])
            _dma(out, gpu, device, e, trace)
            _channels(out, gpu, e)
            _link(out, gpu, links, arrivals, device, e, trace)
    return path


def flow_of(device: int, wg: int, wf: int) -> int:
    """Return the number of a tile's arrow."""
    return (device + 1) << 32 | int(wg) << 8 | int(wf)


def _units(out: TimelineWriter, gpu: int, e: np.ndarray, trace: Trace) -> None:
    """Draw slices of what each compute unit does; none while it is idle."""
    stages = e[e["kind"] == Kind.STAGE]
    end = trace.run["recorded"]["until"]
    for unit in np.unique(stages["unit"]):
        track = out.track(_place_name(int(unit), trace.run["geometry"]), gpu)
        mine = stages[stages["unit"] == unit]
        for now, until in zip(mine, [*mine["cycle"][1:], end]):
            if now["b"] != _IDLE:
                out.slice(now["cycle"], until, track, STATES[now["b"]].replace("_", " "), workgroup=now["wg"])


def _place_name(place: int, geometry: dict) -> str:
    """Name a place for a workgroup on a compute unit, which may have several."""
    units = geometry.get("units") or geometry["compute_units"]
    which = f", place {place // units}" if geometry["compute_units"] > units else ""
    return f"compute unit {place % units}{which}"


def _tracker(out: TimelineWriter, gpu: int, device: int, e: np.ndarray, first: int) -> None:
    """Open tiles, and an instant per trigger, where the tile's arrow begins."""
    updates = e[e["kind"] == Kind.UPDATE]
    flags = updates["flags"]
    change = ((flags & ALLOCATED) != 0).astype(int)
    change -= ((flags & (COMPLETE | EXCEEDS)) != 0) & (updates["c"] >= 0)
    counter = out.track("open tiles in the Tracker", gpu, unit="tiles")
    out.counter(first, counter, int(change[updates["cycle"] < first].sum()))
    for update, total in zip(updates[change != 0], np.cumsum(change)[change != 0]):
        if update["cycle"] >= first:
            out.counter(update["cycle"], counter, int(total))
    track = out.track("triggers", gpu)
    for t in e[e["kind"] == Kind.TRIGGER]:
        flow = flow_of(device, t["wg"], t["wf"]) if t["a"] == 1 else None
        out.instant(t["cycle"], track, f"wg {t['wg']} wf {t['wf']}", flow, region=t["region"], to_dma=t["a"])


def _dma(out: TimelineWriter, gpu: int, device: int, e: np.ndarray, trace: Trace) -> None:
    """Draw commands that wait, and a slice per command on its engine."""
    waiting = out.track("DMA commands waiting", gpu, unit="commands")
    for c in e[(e["kind"] == Kind.READY) | (e["kind"] == Kind.ISSUE)]:
        out.counter(c["cycle"], waiting, int(c["a"]) + (1 if c["kind"] == Kind.READY else -1))
    end = trace.run["recorded"]["until"]
    for engine in range(trace.run["geometry"]["engines"]):
        track = out.track(f"DMA engine {engine}", gpu)
        of_engine = e[e["unit"] == engine]
        issued, walked = (of_engine[of_engine["kind"] == kind] for kind in (Kind.ISSUE, Kind.WALKED))
        # An engine queues two commands and walks them in order.
        late = np.searchsorted(walked["cycle"], issued["cycle"][0], "right") if len(issued) else 0
        ends = walked["cycle"][late:]
        free = 0
        for i, command in enumerate(issued):
            until = int(ends[i]) if i < len(ends) else end
            first = max(int(command["cycle"]), free)
            out.slice(first, max(first, until), track, f"wg {command['wg']} wf {command['wf']}",
                      flow_of(device, command["wg"], command["wf"]), region=command["region"], taken=command["cycle"])
            free = max(first, until)


def _channels(out: TimelineWriter, gpu: int, e: np.ndarray) -> None:
    """Draw the requests in each channel's DRAM queue, where the arbiter saw them change."""
    decisions = e[e["kind"] == Kind.DECIDE]
    for channel in np.unique(decisions["unit"]):
        track = out.track(f"DRAM queue of channel {channel}", gpu, unit="requests")
        mine = decisions[decisions["unit"] == channel]
        changed = np.flatnonzero(np.diff(mine["a"], prepend=-1))
        for d in mine[changed]:
            out.counter(d["cycle"], track, int(d["a"]))


def _link(out: TimelineWriter, gpu: int, links: list[int], arrivals: list[int], device: int, e: np.ndarray,
          trace: Trace) -> None:
    """Draw how far the link is behind, and each tile's first packet and first arrival, where its arrow ends."""
    backlog = out.track("link backlog", gpu, unit="cycles")
    packets = e[e["kind"] == Kind.PACKET]
    for p in packets[np.flatnonzero(np.diff(packets["b"], prepend=-1))]:
        out.counter(p["cycle"], backlog, int(p["b"]))
    arrived = trace.of(Kind.ARRIVE)
    if trace.passes:
        _pieces(out, links, arrivals, device, packets, arrived, trace)
        return
    for p in _first_of_each_tile(packets):
        source = trace.map.sender(device, p)
        flow = flow_of(device, source, p["wf"]) if source is not None and p["source"] == _FROM_DMA else None
        out.instant(p["cycle"], links[device], f"wg {p['wg']} wf {p['wf']} of GPU {p['a']}", flow, bytes=p["amount"])
        for a in _arrivals(trace, device, source, p, arrived):
            ways = 1 if source is None else len(trace.map.routes(TileId(device, source, int(p["wf"]))))
            out.instant(a["cycle"], arrivals[a["device"]], f"wg {a['wg']} wf {a['wf']}", flow, last=ways == 1,
                        channel=a["unit"])


def _pieces(out: TimelineWriter, links: list[int], arrivals: list[int], device: int, packets: np.ndarray,
            arrived: np.ndarray, trace: Trace) -> None:
    """Draw the first packet that each workgroup of a collective alone sends to a peer, and its arrival."""
    for number in np.unique(packets["a"]):
        copies = trace.passes.copies(device, int(number))
        if not copies:  # it passes on what others send
            continue
        sent, (first, shift) = packets[packets["a"] == number], copies[0]
        who = trace.passes.stored_by(first, sent["address"].astype(np.int64) + shift, device)
        here = who[:, 0] == device
        first_of_each = np.unique(who[here], axis=0, return_index=True)[1]
        for p, (_, wg) in zip(*(rows[here][first_of_each] for rows in (sent, who))):
            flow, to = flow_of(device, wg, number), joined([str(trace.run["numbers"][there]) for there, _ in copies])
            named = number if trace.run["mirrored"] else to
            out.instant(p["cycle"], links[device], f"wg {wg} to GPU {named}", flow, bytes=p["amount"])
            coming = arrived[arrived["cycle"] >= p["cycle"]]
            ends = [a for there, shift in copies for a in coming[
                (coming["device"] == there) & (coming["address"] == int(p["address"]) + shift)][:1]]
            for a in (ends := sorted(ends, key=lambda a: a["cycle"])):
                out.instant(a["cycle"], arrivals[a["device"]], f"wg {wg} of GPU {trace.run['numbers'][device]}", flow,
                            last=a is ends[-1], channel=a["unit"])


def _arrivals(trace: Trace, device: int, source: int | None, packet, arrived: np.ndarray) -> Iterator[np.void]:
    """Find a packet's arrivals, several if a switch copies it, as far as they were recorded.

    In mirrored mode, and where a switch changes it, it is the first of each tile that its tile feeds.
    """
    later = arrived[arrived["cycle"] >= packet["cycle"]]
    if not trace.run["mirrored"] and packet["a"] < trace.run["devices"]:
        yield from later[(later["device"] == packet["a"]) & (later["address"] == packet["address"])
                         & (later["wg"] == packet["wg"])][:1]
        return
    for fed in trace.map.feeds(TileId(device, source, int(packet["wf"]))) if source is not None else ():
        event = later[(later["device"] == fed.device) & (later["wg"] == fed.wg) & (later["wf"] == fed.wf)][:1]
        if len(event):
            yield event[0]
            if packet["a"] < trace.run["devices"]:
                return


def _first_of_each_tile(events: np.ndarray) -> Iterator[np.void]:
    key = events["a"].astype(np.int64) << 32 | events["wg"].astype(np.int64) << 8 | events["wf"]
    return iter(events[np.sort(np.unique(key, return_index=True)[1])])
