"""Role of a tile at its device, and the owner of its data, in the words of the schedule that ran."""

from t3sim.trace.output_map import Place
from t3sim.trace.schema import SOURCES
from t3sim.trace.tile import Tile
from t3sim.trace.words import joined, plural

_LOCAL, _REMOTE, _DMA = map(SOURCES.index, ("local", "remote", "dma"))


def devices(numbers: list[int]) -> str:
    """Write devices by their numbers: `device 3`, `devices 1, 2 and 3`."""
    return f"device{'' if len(numbers) == 1 else 's'} {joined(list(map(str, numbers)))}"


def extent(place: Place) -> str:
    """Write which rows and columns a tile has."""
    return (f"rows {place.row} to {place.row + place.rows - 1}, columns {place.column} to "
            f"{place.column + max(place.columns, 1) - 1}")


def role(tile: Tile) -> str:
    """Write what a device does with a tile: `made here, added to what device 1 sends, final here`."""
    place, run = tile.place, tile.trace.run
    region = place.region or {}
    if run["around_a_ring"] and place.made and not region.get("present"):
        return f"ring position {place.position} of {run['devices']}"
    senders = others_of(tile)
    send = "send" if senders.startswith("devices") else "sends"
    if tile.before:
        parts = ["in memory from the start"]
    elif place.stored is not None:
        parts = [f"{plural(place.stored, 'column')} of it made here" if region.get("to") else
                 f"the sum of {plural(place.stored, 'column')} made here and what {senders} {send}"]
    elif not place.made:
        parts = [f"a copy of what {senders} {send}"]
    else:
        parts = ["made here" + (f" by {place.made} workgroups" if place.made > 1 else "")]
        if region.get("updates_per_element", 0) > 1 and tile.trace.map.fed_by(tile.id):
            parts.append(f"added to {senders}" if _switched(tile) else f"added to what {senders} {send}")
    if region.get("to"):
        parts.append(f"sent {'as it is made' if tile.role == 'remote' else 'on when complete'} to {receivers(tile)}")
    elif region.get("updates_per_element"):
        parts.append("final here")
    return ", ".join(parts)


def receivers(tile: Tile) -> str:
    """Write where a tile goes."""
    numbers = sorted({number for number, _ in tile.trace.map.routes(tile.id)})
    if tile.trace.run["around_a_ring"]:
        return "the neighbour"
    return devices(numbers) + (" through the switch" if tile.trace.run["in_switch"] else "")


def others_of(tile: Tile) -> str:
    """Write from whom a tile's other data come."""
    numbers = tile.trace.map.from_devices(tile.id) if tile.place else []
    if tile.trace.run.get("around_a_ring"):
        return "upstream"
    if not numbers:
        return "other GPUs"
    return f"the switch's sum of {devices(numbers)}" if _switched(tile) else devices(numbers)


def origin(tile: Tile, source: int) -> str:
    """Write who sent what is counted under one of `SOURCES`."""
    if source == _LOCAL:
        if tile.place and tile.place.stored:
            return "this GPU's own stores, or its request at the dispatch window"
        return "its own request at the dispatch window" if tile.admitted else "this GPU's own stores"
    what = "DMA" if source == _DMA else "stores"
    if tile.place is None or not (numbers := _senders(tile, source)):
        return f"another GPU's {what}"
    if tile.trace.run["around_a_ring"]:
        return f"the upstream GPU's {what}"
    if _switched(tile):
        return f"the switch's sum of {devices(numbers)}"
    return f"the {what} of {devices(numbers)}" if len(numbers) > 1 else f"{devices(numbers)}'s {what}"


def _senders(tile: Tile, source: int) -> list[int]:
    """List the devices whose data come so: those of whose tile it is the role, all if one stands for them."""
    found = tile.trace.map
    if tile.trace.run["mirrored"]:
        return found.from_devices(tile.id)
    wanted = "remote" if source == _REMOTE else "dma"
    return [one.device for one in found.fed_by(tile.id) if Tile.of_id(tile.trace, one).role == wanted]


def _switched(tile: Tile) -> bool:
    """Say whether what comes to a tile is a sum that a switch has made."""
    return bool(tile.trace.run["in_switch"] and tile.place and tile.place.made)
