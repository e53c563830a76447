"""Transaction-level reference of `t3sim.rtl.egress`: what becomes of one line. Lines of a lane stay in order."""

from collections.abc import Sequence
from typing import NamedTuple

from t3sim.reference.address_generator import LineError
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import ERRORS

SOURCE_LOCAL, SOURCE_REMOTE, SOURCE_DMA = 0, 1, 2


class Packet(NamedTuple):
    """Fields of `t3sim.rtl.layouts.packet`; enums as numbers."""

    address: int
    bytes: int
    op: int
    source: int
    region: int
    wf: int
    wg: int
    device: int


def packets_of(line: dict, descriptors: Sequence[dict], geometry: Geometry) -> list[Packet | LineError]:
    """Return what becomes of `line`: a packet or an error, and one more for each region that follows."""
    results, region = [translate(line, descriptors[line["region"]], geometry)], line["region"]
    while line["source"] == SOURCE_DMA and descriptors[region]["send_dma"] and (
            descriptors[region].get("also", 0) > region):
        region = descriptors[region]["also"]
        results.append(translate(line | {"region": region}, descriptors[region], geometry))
    return results


def translate(line: dict, descriptor: dict, geometry: Geometry) -> Packet | LineError:
    """Return the packet that `line` becomes, or the error that it causes; dicts with the fields of the layouts."""
    sources = ((SOURCE_LOCAL, "send_stores", SOURCE_REMOTE), (SOURCE_DMA, "send_dma", SOURCE_DMA))
    source = next((there for here, action, there in sources if line["source"] == here and descriptor[action]), None)
    if source is None:
        return LineError(ERRORS["region_unconfigured"], line["address"], line["region"], line["wf"], line["wg"])
    tracker = geometry.tracker
    return Packet(
        address=(line["address"] + descriptor["address_offset"]) % (1 << tracker.address_bits),
        bytes=line["bytes"], op=descriptor["op"], source=source, region=descriptor["destination_region"],
        wf=line["wf"], wg=(line["wg"] + descriptor["wg_offset"]) % (1 << tracker.wg_bits),
        device=descriptor["device"])
