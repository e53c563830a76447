"""One wavefront tile of a trace: its events, and its place in the output where the run has a map of it."""

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.trace.output_map import Consumer, TileId, TilePlace
from t3sim.trace.schema import ALLOCATED, COMPLETE, EXCEEDS, REFUSED, SOURCES, Kind
from t3sim.trace.store import Trace

_OF_WORKGROUP = (Kind.DISPATCH, Kind.STAGE, Kind.BLOCKED)  #: kinds without a wavefront


def missed(updates: np.ndarray) -> np.ndarray:
    """Return UPDATE events that reach their threshold and do not complete their tile: the Tracker is at fault."""
    return updates[(updates["a"] == updates["b"]) & ((updates["flags"] & (COMPLETE | REFUSED)) == 0)]


def miscounts(updates: np.ndarray) -> list[tuple[np.void, str]]:
    """Return UPDATE events of a device that do not follow from the one before of their tile, and what is wrong.

    A tile's entry is opened empty, counts on in its way, and is freed by what completes or exceeds it; what completes
    a tile alone needs none. Of what was before the recording nothing is known.
    """
    counted = updates[(updates["flags"] & REFUSED) == 0]
    tiles = counted["wg"].astype(np.int64) << 8 | counted["wf"]
    before = _latest(tiles)
    in_way = _latest(tiles << 8 | counted["c"] & 255)
    opens, alone = (counted["flags"] & ALLOCATED) != 0, counted["c"] < 0
    closes = (counted["flags"] & (COMPLETE | EXCEEDS)) != 0
    goes_on = ~opens & ~alone
    open_before = (before >= 0) & ~closes[before]
    freed = goes_on & (in_way >= 0) & closes[in_way]
    lost = open_before & (opens | (alone & closes))
    moved = goes_on & ~freed & open_before & (counted["c"][before] >= 0) & (counted["c"] != counted["c"][before])
    level = np.where(goes_on, counted["a"][before], 0)
    is_known = opens | (alone & closes) | (goes_on & open_before)
    wrong = is_known & ~freed & (counted["a"] != level + counted["amount"])
    mismatches = []
    for place in np.flatnonzero(freed | lost | moved | wrong):
        e, last, there = (counted[one] for one in (place, before[place], in_way[place]))
        if freed[place]:
            what = f"counts on in way {e['c']}, whose entry it freed in cycle {int(there['cycle']):,}"
        elif lost[place]:
            what = (f"begins anew, though the entry in way {last['c']} with the {last['a']:,} bytes of cycle "
                    f"{int(last['cycle']):,} was not freed (lost, if nothing has reset it)")
        elif moved[place]:
            what = f"counts on in way {e['c']}, while the tile's entry is in way {last['c']}"
        else:
            what = f"makes {e['a']:,} bytes of {level[place]:,} and {e['amount']:,}"
        mismatches.append((e, what))
    return mismatches


def _latest(keys: np.ndarray) -> np.ndarray:
    """Return for each place the one before it that has the same key; -1: there is none."""
    in_order = np.argsort(keys, kind="stable")
    same = keys[in_order][1:] == keys[in_order][:-1]
    indices = np.full(len(keys), -1)
    indices[in_order[1:][same]] = in_order[:-1][same]
    return indices


class Tile:
    """Raises BadInput if the run has no such tile."""

    def __init__(self, trace: Trace, wg: int, wf: int, device: int = 0) -> None:
        trace.check_device(device)
        for name, value, count, what in (("wg", wg, trace.run["names"], "this run"),
                                           ("wf", wf, trace.run["wavefronts"], "a workgroup")):
            if not 0 <= value < count:
                raise BadInput(f"{name} = {value} does not exist: {what} has 0 to {count - 1}")
        self.trace, self.wg, self.wf, self.device = trace, wg, wf, device
        self.id = TileId(device, wg, wf)
        self.number: int = trace.run["numbers"][device]  #: of its device
        self.consumer: Consumer | None = trace.map.consumer(device, wg) if trace.map else None
        self.place: TilePlace | None = trace.map.place(self.id) if trace.map and not self.consumer else None
        mine = trace.of(None, device)
        self.of_workgroup = mine[mine["wg"] == wg]
        self.events = self.of_workgroup[(self.of_workgroup["wf"] == wf)
                                        | np.isin(self.of_workgroup["kind"], _OF_WORKGROUP)]

    @classmethod
    def of_id(cls, trace: Trace, tile: TileId) -> "Tile":
        return cls(trace, tile.wg, tile.wf, tile.device)

    def of(self, kind: Kind) -> np.ndarray:
        return self.events[self.events["kind"] == kind]

    @property
    def role(self) -> str:
        """The kind of its region, `remote`, `dma` or `event`; `local` without one; `unknown` where nothing says so."""
        if self.place:
            return self.place.region["kind"] if self.place.region else "local"
        triggers = self.of(Kind.TRIGGER)
        return ("event", "dma", "unknown")[triggers["a"][-1]] if len(triggers) else "unknown"

    @property
    def empty(self) -> bool:
        """Say whether the whole tile has no columns."""
        return self.place is not None and not self.place.columns_of_tile

    @property
    def before(self) -> bool:
        """Say whether this device has it in memory from the start."""
        return bool(self.trace.run["group_tiles"] and self.place and self.place.made)

    @property
    def admitted(self) -> bool:
        """Say whether it only arrives here: its request is a byte that it waits for, too."""
        return bool(self.place and self.place.region and self.place.region["admitted"])

    @property
    def bytes(self) -> int:
        """Bytes of one update of the whole tile."""
        return self.place.region["tile_bytes"]

    @property
    def own_bytes(self) -> int:
        """Bytes that should be counted of what this device itself stores, or of its request."""
        region = self.place.region
        if region["present"]:
            return region["counted_bytes"] * region["updates_per_element"]
        return self.admitted + self.stored_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes that this device's workgroups store of it, here or at each peer: all parts of K."""
        if (columns := self.place.stored) is not None:
            return columns * self.place.rows * self.place.element_bytes
        return self.bytes * self.trace.run["parts"] if self.place.made else 0

    @property
    def expected_bytes(self) -> int:
        """Bytes that should complete it."""
        region = self.place.region
        return region["counted_bytes"] * region["updates_per_element"] + self.admitted

    @property
    def updates(self) -> np.ndarray:
        """UPDATE events that were counted: what is refused leaves its tile as it was."""
        updates = self.of(Kind.UPDATE)
        return updates[(updates["flags"] & REFUSED) == 0]

    @property
    def refused(self) -> np.ndarray:
        updates = self.of(Kind.UPDATE)
        return updates[(updates["flags"] & REFUSED) != 0]

    @property
    def lives(self) -> list[np.ndarray]:
        """The counted updates of each time that the Tracker held the tile; the last one may go on."""
        updates = self.updates
        ends = np.flatnonzero(updates["flags"] & (COMPLETE | EXCEEDS)) + 1
        return [life for life in np.split(updates, ends) if len(life)]

    @property
    def fired(self) -> bool:
        return bool((self.updates["flags"] & COMPLETE).any())

    @property
    def missed(self) -> np.ndarray:
        """Updates that brought the count to the threshold, upon which the Tracker did not fire."""
        return missed(self.updates)

    @property
    def miscounts(self) -> list[tuple[np.void, str]]:
        return miscounts(self.updates)

    def counted(self, life: int = -1) -> dict[str, int]:
        """Return, by source, the bytes that were counted in one of its `lives`."""
        totals: dict[str, int] = {}
        for e in self.lives[life] if self.lives else ():
            name = SOURCES[e["source"]]
            totals[name] = totals.get(name, 0) + int(e["amount"])
        return totals

    def packets(self) -> np.ndarray:
        """Return its data on the link, known by their addresses: a wrong name does not hide them.

        Where the device has another tile at these addresses, the regions of the destination tell the two apart.
        """
        output_map, sent = self.trace.map, self.trace.of(Kind.PACKET, self.device)
        mine, own = np.zeros(len(sent), bool), self.trace.run["bases"][self.number]
        meant = {(to["device"], to["region"]) for to in (self.place.region or {}).get("to", ())}
        alike = output_map.alike(self.id)
        for number in np.unique(sent["a"]).tolist():
            for to in output_map.destinations(self.device, number)[:1]:
                here = sent["a"] == number
                here &= self.place.holds(sent["address"], self.place.base + self.trace.run["bases"][to] - own)
                if alike:
                    here &= np.isin(sent["region"], [region for device, region in meant if device == to])
                mine |= here
        return sent[mine]

    def sent_to(self, receiver: "Tile") -> np.ndarray:
        """Return those of its packets that are for a tile which it feeds, under that tile's name."""
        packets = self.packets()
        if self.trace.run["mirrored"]:
            return packets
        numbers = [number for number in np.unique(packets["a"]).tolist()
                   if receiver.number in self.trace.map.destinations(self.device, number)]
        copied = packets["a"] >= self.trace.run["devices"]  # with the name that it has at the first of them
        return packets[np.isin(packets["a"], numbers) & (copied | (packets["wg"] == receiver.wg))]
