"""Why a tile fired or did not, and why an arbiter granted what it did: answers from a trace, in words.

Nothing is simulated here. What a trace does not hold, because of its window or filters, is said and not guessed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ..errors import BadInput
from ..gemm import STATES
from .schema import (
    ALLOCATED,
    COMPLETE,
    EXCEEDS,
    NO_STREAM,
    OPS,
    POLICIES,
    QUEUES,
    REASONS,
    REFUSED,
    SOURCES,
    STREAMS,
    Kind,
    Reason,
    conditions,
)
from .store import Trace

FROM = {"local": "this GPU's own stores", "remote": "the upstream GPU's stores", "dma": "the upstream GPU's DMA"}


@dataclass
class Answer:
    """What is known, in order of time, and what follows from it."""

    subject: str
    steps: list[tuple[int | None, str]] = field(default_factory=list)  #: (cycle, what happened)
    verdict: list[str] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)

    def to_json(self) -> dict:
        return {
            "subject": self.subject,
            "steps": [{"cycle": cycle, "text": text} for cycle, text in self.steps],
            "verdict": self.verdict,
            "caveats": self.caveats,
        }


def hexadecimal(address) -> str:
    return f"{int(address):#x}"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


class Tile:
    """All events of one wavefront tile on one device, and of its packets to the next."""

    def __init__(self, trace: Trace, wg: int, wf: int, device: int) -> None:
        self.trace, self.wg, self.wf, self.device = trace, wg, wf, device
        run, plan = trace.run, trace.plan
        if not 0 <= device < trace.devices:
            raise BadInput(
                f"--device {device} is not in this trace: it has 0 to {trace.devices - 1}"
                + (" (one GPU stands for all)" if run["mirrored"] else "")
            )
        if not 0 <= wg < run["workgroups"]:
            raise BadInput(f"--wg {wg} does not exist: this run has 0 to {run['workgroups'] - 1}")
        if not 0 <= wf < run["wavefronts"]:
            raise BadInput(f"--wf {wf} does not exist: a workgroup has 0 to {run['wavefronts'] - 1}")
        self.columns = int(np.clip(plan["columns"][device, wg] - wf * self._wf_columns(), 0, self._wf_columns()))
        number = int(plan["region"][device, wg, int(self.columns < self._wf_columns())])
        self.region_number = number
        self.region = trace.regions(device)[number - 1] if number else None
        e = trace.events
        self._own = e[(e["device"] == device) & (e["wg"] == wg)]
        self.events = self._own[(self._own["wf"] == wf) | np.isin(self._own["kind"], _OF_WORKGROUP)]
        self.base = int(plan["c_base"][device, wg]) + wf * self._wf_columns() * self._pitch()

    def _wf_columns(self) -> int:
        return self.trace.run["wf_columns"]

    def _pitch(self) -> int:
        return self.trace.run["pitch_bytes"]

    @property
    def role(self) -> str:
        return self.region["kind"] if self.region else "none"

    def of(self, kind: Kind) -> np.ndarray:
        return self.events[self.events["kind"] == kind]

    @property
    def threshold(self) -> int:
        """Bytes that complete it: as the hardware had it if an update was recorded, else as the run's map wants it."""
        updates = self.of(Kind.UPDATE)
        return int(updates["b"][-1]) if len(updates) else self.wanted_bytes

    @property
    def wanted_bytes(self) -> int:
        return self.region["tile_bytes"] * self.region["updates_per_element"]

    def holds(self, addresses: np.ndarray, base: int | None = None) -> np.ndarray:
        """Which addresses lie in the tile, were it at `base`."""
        offset = addresses.astype(np.int64) - (self.base if base is None else base)
        column, within = offset // self._pitch(), offset % self._pitch()
        width = self.region["columns"] if self.region else self.columns
        return (column >= 0) & (column < width) & (within < 2 * int(self.trace.plan["rows"][self.device, self.wg]))

    def packets(self) -> np.ndarray:
        """Its data on the link, known by their addresses: a wrong workgroup id does not hide them."""
        e, bases = self.trace.events, self.trace.run["bases"][self.device]
        sent = e[(e["kind"] == Kind.PACKET) & (e["device"] == self.device)]
        return sent[self.holds(sent["address"], self.base + bases["downstream"] - bases["own"])]


def packet_source(trace: Trace, device: int, packet) -> int | None:
    """Workgroup of `device` whose tile a packet's address lies in, whatever workgroup it names; None: of no tile."""
    bases, plan = trace.run["bases"][device], trace.plan
    offset = int(packet["address"]) - bases["downstream"]
    column, row = offset // trace.run["pitch_bytes"], offset % trace.run["pitch_bytes"] // 2
    inside = ((plan["n0"][device] <= column) & (column < plan["n0"][device] + plan["columns"][device])
              & (plan["m0"][device] <= row) & (row < plan["m0"][device] + plan["rows"][device]))
    found = np.flatnonzero(inside)
    return int(found[0]) if len(found) else None


_OF_WORKGROUP = [int(Kind.DISPATCH), int(Kind.STAGE), int(Kind.BLOCKED)]


def explain_tile(trace: Trace, wg: int, wf: int, device: int = 0) -> Answer:
    """The life of a wavefront tile, and if it did not fire, what it still waits for and where that is."""
    tile = Tile(trace, wg, wf, device)
    plan = trace.plan
    row, column = int(plan["m0"][device, wg]), int(plan["n0"][device, wg]) + wf * trace.run["wf_columns"]
    answer = Answer(
        f"device {trace.run['ring_devices'][device]}, workgroup {wg}, wavefront {wf}: ring position "
        f"{int(plan['position'][device, wg])} of {trace.run['devices']}, rows {row} to "
        f"{row + int(plan['rows'][device, wg]) - 1}, columns {column} to {column + max(tile.columns, 1) - 1} of the "
        f"output, at {hexadecimal(tile.base)}"
    )
    if tile.columns == 0:
        answer.verdict.append("The wavefront has no columns of this ragged tile: there is nothing to track.")
        return answer
    answer.caveats += _caveats(trace, wg)
    _workgroup_steps(tile, answer)
    if tile.role == "remote":
        _remote_steps(tile, answer)
    else:
        _tracked_steps(tile, answer)
    answer.steps.sort(key=lambda step: -1 if step[0] is None else step[0])
    return answer


def _caveats(trace: Trace, wg: int | None) -> list[str]:
    found = []
    first, last = trace.window
    recorded, chosen = trace.run["recorded"], trace.run["filter"]
    if first > 0:
        found.append(f"The recording starts at cycle {first:,}; what happened before is not known.")
    if recorded["dropped"]:
        found.append(f"The recording reached its limit: events after cycle {last:,} are missing.")
    elif last < recorded["cycles_of_run"] or recorded["outcome"] == "window":
        found.append(f"The recording ends at cycle {last:,}, before the run did.")
    if chosen["kinds"] is not None:
        found.append(f"Only these kinds were recorded: {', '.join(chosen['kinds'])}.")
    if chosen["channels"] is not None:
        found.append(f"Requests were recorded on these channels only: {', '.join(map(str, chosen['channels']))}.")
    if wg is not None and chosen["wgs"] is not None and wg not in chosen["wgs"]:
        found.append(f"Workgroup {wg} is not among those recorded ({', '.join(map(str, chosen['wgs'][:20]))}).")
    return found


def _workgroup_steps(tile: Tile, answer: Answer) -> None:
    for e in tile.of(Kind.BLOCKED):
        answer.steps.append(
            (
                int(e["cycle"]),
                (f"the dispatch window holds the workgroup back (window heads: {e['a']} here, {e['b']} downstream)"),
            )
        )
    for e in tile.of(Kind.DISPATCH):
        answer.steps.append((int(e["cycle"]), f"the workgroup starts on compute unit {e['unit']}"))
    stages = tile.of(Kind.STAGE)
    ended = stages[stages["b"] == 0]
    stores = stages[np.isin(stages["b"], [STATES.index("store_memory"), STATES.index("store_link")])]
    if len(stores):
        answer.steps.append((int(stores["cycle"][0]), "its K loop is done: the tile's stores begin"))
    for e in ended:
        answer.steps.append((int(e["cycle"]), "the workgroup has ended"))


def _remote_steps(tile: Tile, answer: Answer) -> None:
    trace = tile.trace
    packets = tile.packets()
    _packet_steps(tile, packets, answer)
    sent, whole = int(packets["amount"].sum()), tile.region["tile_bytes"]
    answer.verdict.append(
        "Its stores leave for the neighbour as they are made (remote_map): nothing is tracked here, nothing fires. "
        + (f"All {whole:,} bytes left." if sent == whole else f"{sent:,} of {whole:,} bytes left.")
    )
    if sent < whole:
        answer.verdict += _where(trace, tile.device, tile.wg, tile.wf)
    _destination(tile, answer)


def _tracked_steps(tile: Tile, answer: Answer) -> None:
    for cycle, text in _update_lines(tile):
        answer.steps.append((cycle, text))
    for e in tile.of(Kind.FULL):
        answer.steps.append(
            (
                int(e["cycle"]),
                (
                    f"an update of {e['amount']} bytes waits in bank {e['unit']}: set "
                    f"{tile.wg % tile.trace.run['geometry']['sets']} has no free way"
                ),
            )
        )
    for e in tile.of(Kind.TRIGGER):
        goes = "into the DMA table" if e["a"] else "out as an event: its last addition is done"
        answer.steps.append(
            (int(e["cycle"]), (f"the trigger leaves the Tracker, smallest address {hexadecimal(e['address'])}, {goes}"))
        )
    for e in tile.of(Kind.EVENT):
        answer.steps.append((int(e["cycle"]), "the event is announced"))
    fired = _verdict(tile, answer)
    if tile.role == "dma" and fired:
        _dma_steps(tile, answer)
        _packet_steps(tile, tile.packets(), answer)
        _destination(tile, answer)


def _update_lines(tile: Tile) -> Iterator[tuple[int, str]]:
    updates = tile.of(Kind.UPDATE)
    for e in updates:
        source = SOURCES[e["source"]]
        flags = int(e["flags"])
        if flags & REFUSED:
            yield int(e["cycle"]), f"bank {e['unit']} refuses an update of {e['amount']} bytes: region not tracked"
            continue
        text = f"bank {e['unit']} counts {e['amount']} bytes from {FROM[source]}: {e['a']:,} of {e['b']:,}"
        if flags & ALLOCATED:
            text = f"allocated in way {e['c']} of set {tile.wg % tile.trace.run['geometry']['sets']}: " + text
        if flags & COMPLETE:
            text += ", complete: it fires"
        if flags & EXCEEDS:
            text += ", ABOVE the threshold: an error, the entry is freed without a trigger"
        yield int(e["cycle"]), text


def _by_source(updates: np.ndarray) -> dict[str, int]:
    totals: dict[str, int] = {}
    for e in updates:
        name = SOURCES[e["source"]]
        totals[name] = totals.get(name, 0) + int(e["amount"])
    return totals


def _verdict(tile: Tile, answer: Answer) -> bool:
    """Whether it fired; says why, or what is missing."""
    updates = tile.of(Kind.UPDATE)
    complete = updates[(updates["flags"] & COMPLETE) != 0]
    totals = _by_source(updates)
    spelled = ", ".join(f"{amount:,} bytes from {FROM[name]}" for name, amount in totals.items()) or "no update"
    if len(complete):
        e = complete[-1]
        answer.verdict.append(
            f"It fired at cycle {int(e['cycle']):,}: the update of {e['amount']} bytes from "
            f"{FROM[SOURCES[e['source']]]} brought the count to the threshold of {e['b']:,} bytes "
            f"({spelled})."
        )
        return True
    if (updates["flags"] & EXCEEDS).any():
        answer.verdict.append(
            f"It went past its threshold, which is an error ({spelled}): more was sent to this tile than belongs to it."
        )
        answer.verdict += _intruders(tile)
        return False
    if not {"update", None} & (
        {None} if tile.trace.run["filter"]["kinds"] is None else set(tile.trace.run["filter"]["kinds"])
    ):
        answer.verdict.append("Updates were not recorded, so whether it fired is not known.")
        return False
    count = int(updates["a"][-1]) if len(updates) else 0
    answer.verdict.append(f"It has not fired: {count:,} of {tile.threshold:,} bytes are counted ({spelled}).")
    if tile.threshold != tile.wanted_bytes:
        answer.verdict.append(
            f"The hardware's threshold is {tile.threshold:,} bytes, but {tile.region['updates_per_element']} updates "
            f"of a tile of {tile.region['rows']} x {tile.region['columns']} elements are {tile.wanted_bytes:,}: region "
            f"{tile.region_number} is programmed wrongly, and tiles that its updates should complete wait for ever."
        )
    if count >= tile.wanted_bytes:
        return False
    _missing(tile, totals, answer)
    return False


def _missing(tile: Tile, totals: dict[str, int], answer: Answer) -> None:
    """Of the local and the arriving share, what has not been counted, and where it is."""
    trace, share = tile.trace, tile.region["tile_bytes"]
    local = totals.get("local", 0)
    arrived = totals.get("remote", 0) + totals.get("dma", 0)
    if local < share:
        answer.verdict.append(f"Missing from this GPU: {share - local:,} bytes. " + _local_state(tile))
    if tile.region["updates_per_element"] > 1 and arrived < share:
        upstream = [d for d, to in enumerate(trace.run["downstream"]) if to == tile.device][0]
        answer.verdict.append(
            f"Missing from upstream (device {trace.run['ring_devices'][upstream]}"
            + (", which this one stands for" if trace.run["mirrored"] else "")
            + f"): {share - arrived:,} bytes. "
            + _upstream_state(tile, upstream)
        )
    answer.verdict += _where(trace, tile.device, tile.wg, tile.wf)


def _local_state(tile: Tile) -> str:
    if len(tile.of(Kind.DISPATCH)) == 0 and tile.trace.window[0] == 0:
        if len(tile.of(Kind.BLOCKED)):
            return "The workgroup has not started: the dispatch window holds it back."
        return "The workgroup has not started."
    stages = tile.of(Kind.STAGE)
    if len(stages) == 0:
        return "What its workgroup does is not recorded."
    now = int(stages["b"][-1])
    return (
        "Its workgroup has ended."
        if now == 0
        else f"Its workgroup is on compute unit {stages['unit'][-1]}, state: {STATES[now]}, since cycle "
        f"{int(stages['cycle'][-1]):,}."
    )


def _upstream_state(tile: Tile, upstream: int) -> str:
    trace = tile.trace
    e = trace.events
    packets = e[(e["kind"] == Kind.PACKET) & (e["device"] == upstream) & (e["wg"] == tile.wg) & (e["wf"] == tile.wf)]
    source = _source_of(trace, upstream, tile)
    told = "" if source is None else f"There the tile is workgroup {source}. "
    if trace.run["mirrored"]:
        return told
    if source is None:
        return "No workgroup of it maps to this tile."
    other = Tile(trace, source, tile.wf, upstream)
    told += f"It has sent {int(packets['amount'].sum()):,} bytes for this tile. "
    if other.role == "dma":
        complete = other.of(Kind.UPDATE)
        fired = len(complete[(complete["flags"] & COMPLETE) != 0])
        told += "It fired there" if fired else "It has not fired there"
        told += f" (t3 explain --wg {source} --wf {tile.wf} --device {upstream})."
    return told


def _source_of(trace: Trace, upstream: int, tile: Tile) -> int | None:
    """Workgroup of the upstream device whose tile is this one: the same place in the output."""
    plan = trace.plan
    same = np.flatnonzero(
        (plan["tile"][upstream] == plan["tile"][tile.device, tile.wg])
        & (plan["position"][upstream] < trace.run["devices"] - 1)
    )
    if trace.run["mirrored"]:  # this device stands for its neighbour, one ring position earlier
        return None
    return int(same[0]) if len(same) else None


def _intruders(tile: Tile) -> list[str]:
    """Requests for this tile whose address lies outside it."""
    e = tile.events
    writes = e[(e["kind"] == Kind.ENTER) & (e["op"] != 0)]
    outside = writes[~tile.holds(writes["address"])]
    if len(outside) == 0:
        return []
    sources = sorted({FROM[SOURCES[s]] for s in outside["source"]})
    return [
        (
            f"{_plural(len(outside), 'request')} from {' and '.join(sources)} carried this tile's ids but addresses "
            f"outside it, such as {hexadecimal(outside['address'][0])} at cycle {int(outside['cycle'][0]):,}: whoever "
            "sent them has a wrong workgroup offset or address offset."
        )
    ]


def _where(trace: Trace, device: int, wg: int, wf: int) -> list[str]:
    """Where requests of a tile were when the recording ended: in the models' queues, and inside the hardware."""
    e = trace.events
    mine = e[(e["wg"] == wg) & (e["wf"] == wf) & (e["op"] != 0)]
    waits = e[(e["kind"] == Kind.WAITING) & (e["wg"] == wg) & (e["wf"] == wf)]
    found = []
    for queue, device_of, unit in sorted({(int(w["b"]), int(w["device"]), int(w["unit"])) for w in waits}):
        here = waits[(waits["b"] == queue) & (waits["device"] == device_of) & (waits["unit"] == unit)]
        place = QUEUES[queue] + (f" of channel {unit}" if queue in (0, 1, 5) else "")
        ahead = int(here["a"].min())
        found.append(
            f"At the end {_plural(len(here), 'request')} ({int(here['amount'].sum()):,} bytes) waited in the "
            f"{place} of device {trace.run['ring_devices'][device_of]}, behind {_plural(ahead, 'other')}."
        )
    at = mine[mine["device"] == device]
    entered = at[at["kind"] == Kind.ENTER]
    granted = at[(at["kind"] == Kind.DECIDE) & (at["stream"] != NO_STREAM)]
    for channel in np.unique(entered["unit"]):
        inside = entered[entered["unit"] == channel]
        out = granted[granted["unit"] == channel]
        if len(inside) > len(out):
            reason = _last_decision(trace, device, int(channel))
            found.append(
                f"{_plural(len(inside) - len(out), 'request')} waited at the arbiter of channel {channel}"
                + (f": {reason}." if reason else ".")
            )
    if trace.run["filter"]["kinds"] is None and trace.run["filter"]["channels"] is None:
        reported = int(
            e["amount"][(e["kind"] == Kind.REPORT) & (e["device"] == device) & (e["wg"] == wg) & (e["wf"] == wf)].sum()
        )
        counted = int(
            e["amount"][(e["kind"] == Kind.UPDATE) & (e["device"] == device) & (e["wg"] == wg) & (e["wf"] == wf)].sum()
        )
        taken = int(granted["amount"].sum())
        if taken > reported:
            found.append(f"{taken - reported:,} bytes were granted and not yet reported: in a coalescer.")
        if reported > counted:
            found.append(
                f"{reported - counted:,} bytes were reported and not yet counted: in the update network or a "
                "bank's queue."
            )
    return found


def _last_decision(trace: Trace, device: int, channel: int) -> str:
    e = trace.events
    last = e[(e["kind"] == Kind.DECIDE) & (e["device"] == device) & (e["unit"] == channel)]
    return REASONS[Reason(last["reason"][-1])] if len(last) else ""


def _dma_steps(tile: Tile, answer: Answer) -> None:
    """The block's command: it carries the lowest wavefront of the block."""
    per_block = max(1, tile.region["tiles_per_block"])
    first = tile.wf // per_block * per_block
    own = tile._own
    for kind, text in (
        (Kind.READY, "the DMA block is complete; its command waits behind {a} others"),
        (Kind.ISSUE, "engine {unit} takes the command"),
        (Kind.WALKED, "engine {unit} has asked for the last line"),
    ):
        of_block = own[
            (own["kind"] == kind)
            & ((own["wf"] == first) if kind != Kind.WALKED else (own["wf"] // per_block * per_block == first))
        ]
        for e in of_block:
            answer.steps.append((int(e["cycle"]), text.format(a=e["a"], unit=e["unit"])))
    if not len(own[(own["kind"] == Kind.READY) & (own["wf"] == first)]) and per_block > 1:
        answer.verdict.append(f"Its DMA block (wavefronts {first} to {first + per_block - 1}) is not complete yet.")
    lines = tile.of(Kind.LINE)
    served = tile.events[(tile.events["kind"] == Kind.SERVE) & (tile.events["op"] == 0)]
    for events, text in ((lines, "lines asked for"), (served, "lines read from DRAM")):
        if len(events):
            answer.steps.append(
                (int(events["cycle"][-1]), (f"{len(events)} {text}, the first at cycle {int(events['cycle'][0]):,}"))
            )


def _packet_steps(tile: Tile, packets: np.ndarray, answer: Answer) -> None:
    if not len(packets):
        return
    trace = tile.trace
    answer.steps.append(
        (
            int(packets["cycle"][-1]),
            (
                f"{_plural(len(packets), 'packet')} ({int(packets['amount'].sum()):,} bytes) onto the link to "
                f"device {packets['a'][-1]}, as workgroup {packets['wg'][-1]} there, the first at cycle "
                f"{int(packets['cycle'][0]):,}"
            ),
        )
    )
    downstream = trace.run["ring_devices"][tile.device] - 1
    wrong = packets[packets["a"] != downstream % trace.run["devices"]]
    if len(wrong):
        answer.verdict.append(
            f"{_plural(len(wrong), 'packet')} named device {wrong['a'][0]}, but the link leads to device "
            f"{downstream % trace.run['devices']}."
        )


def _destination(tile: Tile, answer: Answer) -> None:
    """What became of it at the neighbour."""
    trace = tile.trace
    if trace.run["mirrored"]:
        answer.caveats.append(
            "One GPU stands for all: what arrives at the neighbour is this GPU's own next ring position, "
            "delayed by the link. Record with --every-gpu to follow a tile."
        )
        return
    packets = tile.packets()
    if not len(packets):
        return
    target, wg = trace.run["downstream"][tile.device], int(packets["wg"][-1])
    e = trace.events
    there = e[(e["device"] == target) & (e["wg"] == wg) & (e["wf"] == tile.wf)]
    arrived = there[there["kind"] == Kind.ARRIVE]
    updates = there[(there["kind"] == Kind.UPDATE) & (there["source"] != 0)]
    name = f"device {trace.run['ring_devices'][target]}"
    if len(arrived):
        answer.steps.append(
            (
                int(arrived["cycle"][-1]),
                (
                    f"{_plural(len(arrived), 'packet')} arrived at {name}, the first at "
                    f"cycle {int(arrived['cycle'][0]):,}"
                ),
            )
        )
    if len(updates):
        answer.steps.append(
            (
                int(updates["cycle"][-1]),
                (
                    f"{int(updates['amount'].sum()):,} bytes of them are counted in "
                    f"{name}'s Tracker, the first at cycle "
                    f"{int(updates['cycle'][0]):,}"
                ),
            )
        )
    plan = trace.plan
    if plan["tile"][target, wg] != plan["tile"][tile.device, tile.wg]:
        same = np.flatnonzero(plan["tile"][target] == plan["tile"][tile.device, tile.wg])
        answer.verdict.append(
            f"Sent to the wrong tile: workgroup {wg} of {name} computes output tile "
            f"{plan['tile'][target, wg]}, but this is tile {plan['tile'][tile.device, tile.wg]}, which is "
            f"workgroup {same[0]} there. Region {tile.region_number}'s wg_offset is wrong."
        )


def explain_channel(trace: Trace, channel: int, cycle: int, device: int = 0) -> Answer:
    """Why a channel's arbiter granted what it did in a cycle, and what the streams had to offer."""
    channels = trace.run["geometry"]["channels"]
    if not 0 <= channel < channels:
        raise BadInput(f"--channel {channel} does not exist: this run has 0 to {channels - 1}")
    if not 0 <= device < trace.devices:
        raise BadInput(f"--device {device} is not in this trace: it has 0 to {trace.devices - 1}")
    first, last = trace.window
    if not first <= cycle < last:
        raise BadInput(f"--cycle {cycle} is not in the recording, which has {first} to {last - 1}")
    chosen = trace.run["filter"]
    if (
        chosen["kinds"] is not None
        and "decide" not in chosen["kinds"]
        or chosen["channels"] is not None
        and channel not in chosen["channels"]
        or chosen["wgs"] is not None
    ):
        raise BadInput(
            f"this trace does not hold every decision of channel {channel}: record it without --wg, and with "
            "--kind decide,enter if with --kind"
        )
    e = trace.events
    mine = e[(e["device"] == device) & (e["unit"] == channel)]
    decisions = mine[mine["kind"] == Kind.DECIDE]
    answer = Answer(f"device {trace.run['ring_devices'][device]}, channel {channel}, cycle {cycle:,}")
    index = int(np.searchsorted(decisions["cycle"], cycle, "right")) - 1
    if index < 0:
        answer.verdict.append("Nothing has been decided on this channel since the recording began.")
        return answer
    now = decisions[index]
    saw = conditions(int(now["flags"]))
    since = int(now["cycle"])
    waited = int(now["c"]) + (cycle - since if now["stream"] == NO_STREAM and saw["communication_waiting"] else 0)
    for stream, name in enumerate(STREAMS):
        answer.steps.append((cycle, f"{name:8} " + _offer(mine, stream, cycle, saw)))
    threshold = "none" if now["b"] == 127 else str(now["b"])
    policy = POLICIES[int(now["flags"]) & 3]
    limit = trace.run["starvation_limit"]
    heeded = limit and policy in ("mca", "ring_aware")
    in_force = "" if saw["starved"] or waited <= limit else ", NOT in force in the hardware"
    answer.steps.append(
        (
            cycle,
            f"policy {policy}, {now['a']} requests in or on the way to the DRAM queue of "
            f"{trace.run['geometry']['queue_entries']} (threshold {threshold}), communication has waited "
            f"{waited} cycles"
            + (f" (starvation limit {limit}{in_force})" if heeded else "")
            + (", the producer has ended" if saw["drain"] else ""),
        )
    )
    reason = REASONS[Reason(int(now["reason"]))]
    if now["stream"] != NO_STREAM and since == cycle:
        answer.verdict.append(f"Granted: {STREAMS[now['stream']]}, {_request(now)}. Why: {reason}.")
        if now["stream"] == 0 and saw["communication_waiting"]:
            answer.verdict.append("Communication waits: " + _held(saw, now))
    elif now["stream"] != NO_STREAM:
        answer.verdict.append(
            "Nothing was granted: nothing waits."
            if not _anything(mine, cycle)
            else "Nothing was granted in this cycle."
        )
    else:
        answer.verdict.append(
            f"Nothing was granted: {reason}" + (f" (since cycle {since:,})." if since < cycle else ".")
        )
    return answer


def _anything(mine: np.ndarray, cycle: int) -> bool:
    return any(_head(mine, stream, cycle) is not None for stream in (0, 1))


def _held(saw: dict[str, bool], now) -> str:
    if saw["communication_able"]:
        return REASONS[Reason(int(now["reason"]))] + "."
    if saw["dma_there"] and not saw["dma_able"]:
        return REASONS[Reason.GUARD] + "."
    return REASONS[Reason.COALESCER] + "."


def _request(e) -> str:
    owner = "" if e["wg"] < 0 else f" of workgroup {e['wg']}, wavefront {e['wf']}"
    article = "an" if OPS[e["op"]] == "update" else "a"
    return f"{article} {OPS[e['op']]} of {e['amount']} bytes at {hexadecimal(e['address'])}{owner}"


def _offer(mine: np.ndarray, stream: int, cycle: int, saw: dict[str, bool]) -> str:
    there = saw[f"{STREAMS[stream]}_there"]
    if not there:
        return "has nothing"
    head = _head(mine, stream, cycle)
    able = {0: saw["compute_able"] or not saw["ready"], 1: saw["inbound_able"], 2: saw["dma_able"]}[stream]
    what = (
        _request(head) if head is not None else "a DMA read" if stream == 2 else "a request from before the recording"
    )
    return f"offers {what}" + (
        "" if able else ", which cannot go: " + REASONS[Reason.GUARD if stream == 2 else Reason.COALESCER]
    )


def _head(mine: np.ndarray, stream: int, cycle: int):
    """Oldest request of a stream that has entered and not been granted before `cycle`; None: not known."""
    granted = mine[(mine["kind"] == Kind.DECIDE) & (mine["stream"] == stream)]
    later = granted[granted["cycle"] >= cycle]
    if len(later):  # streams keep their order: the next to be granted is the oldest
        return later[0]
    entered = mine[(mine["kind"] == Kind.ENTER) & (mine["stream"] == stream) & (mine["cycle"] < cycle)]
    if len(granted) == 0:
        return entered[0] if len(entered) else None
    after = entered[entered["cycle"] >= granted["cycle"][-1] - 2]
    matches = np.flatnonzero(entered["address"] == granted["address"][-1])
    if len(matches) and matches[-1] + 1 < len(entered):
        return entered[matches[-1] + 1]
    return after[-1] if len(after) and not len(matches) else None


def explain_run(trace: Trace) -> Answer:
    """How the recorded run stands: what fired, which tiles have not, and the requests that communication waits on."""
    run, recorded = trace.run, trace.run["recorded"]
    answer = Answer(
        f"{run['workload']['title']}, {run['technique']}, {run['machine']}: {recorded['outcome']} at cycle "
        f"{recorded['cycles_of_run']:,}",
        caveats=_caveats(trace, None),
    )
    if recorded["problem"]:
        answer.verdict.append(recorded["problem"])
    e = trace.events
    for device in range(trace.devices):
        name = run["ring_devices"][device]
        updates = e[(e["kind"] == Kind.UPDATE) & (e["device"] == device)]
        key = updates["wg"].astype(np.int64) << 8 | updates["wf"]
        fired = set(key[(updates["flags"] & COMPLETE) != 0].tolist())
        wrong = sorted(set(key[(updates["flags"] & (EXCEEDS | REFUSED)) != 0].tolist()))
        last = dict(zip(key.tolist(), range(len(updates))))
        open_tiles = sorted(set(last) - fired - set(wrong))
        answer.steps.append(
            (
                None,
                (
                    f"device {name}: {_plural(len(fired), 'tile')} fired, {len(open_tiles)} open in the "
                    f"Tracker, {len(wrong)} wrong; {run['final_tiles']['come'][device]} of "
                    f"{run['final_tiles']['expected'][device]} final tiles have come"
                ),
            )
        )
        for tile in wrong[:5]:
            update = updates[last[tile]]
            answer.steps.append(
                (
                    None,
                    (
                        f"  workgroup {tile >> 8}, wavefront {tile & 255}: went past its threshold of "
                        f"{update['b']:,} bytes at cycle {int(update['cycle']):,}"
                    ),
                )
            )
        for tile in open_tiles[:5]:
            update = updates[last[tile]]
            answer.steps.append(
                (
                    None,
                    (
                        f"  workgroup {tile >> 8}, wavefront {tile & 255}: {update['a']:,} of {update['b']:,} "
                        f"bytes since cycle {int(update['cycle']):,}"
                    ),
                )
            )
        if len(open_tiles) > 5:
            answer.steps.append((None, f"  and {len(open_tiles) - 5} more"))
        grants = e[(e["kind"] == Kind.DECIDE) & (e["device"] == device)]
        if len(grants):
            told = [
                f"{REASONS[Reason(r)]}: {n:,}"
                for r, n in sorted(zip(*np.unique(grants["reason"], return_counts=True)), key=lambda pair: -pair[1])
                if r
            ]
            answer.steps.append((None, "  the arbiters' decisions: " + "; ".join(told)))
            answer.steps.append(
                (None, (f"  longest that communication waited at an arbiter: {int(grants['c'].max()):,} cycles"))
            )
    return answer
