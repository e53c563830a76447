"""Transaction-level reference of `t3sim.rtl.link.egress`: what becomes of one line. Lines of a lane stay in order."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import ERRORS
from t3sim.testbenches.reference.address_generator import LineError

SOURCE_LOCAL, SOURCE_REMOTE, SOURCE_DMA, SOURCE_COPY = 0, 1, 2, 3
STORE, UPDATE = 1, 2


def data_sources(geometry: Geometry) -> tuple[int, ...]:
    """Return the sources of data that DMA reads: for triggers, and for copies of a command queue."""
    return (SOURCE_DMA, SOURCE_COPY) if geometry.dma.queue_commands else (SOURCE_DMA,)


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


def packets_of(line: dict, tables: Mapping[str, Sequence[dict]], geometry: Geometry) -> list[Packet | LineError]:
    """Return what becomes of `line`: an error, or a packet on each of its region's routes.

    `tables`: of `t3sim.rtl.layouts.mapping_tables`, each entry a dict.
    """
    region, routes = tables["region"][line["region"]], tables["route"]
    sources = ((SOURCE_LOCAL, "send_stores", SOURCE_REMOTE), *(
        (source, "send_dma", SOURCE_DMA) for source in data_sources(geometry)))
    source = next((there for here, action, there in sources if line["source"] == here and region[action]), None)
    if source is None or region["route"] + region["more_routes"] >= len(routes):
        return [LineError(ERRORS["region_unconfigured"], line["address"], line["region"], line["wf"], line["wg"])]
    return [_packet(line, source, routes[region["route"] + more], geometry)
            for more in range(region["more_routes"] + 1)]


def _packet(line: dict, source: int, route: dict, geometry: Geometry) -> Packet:
    tracker = geometry.tracker
    return Packet(
        address=(line["address"] + route["address_offset"]) % (1 << tracker.address_bits),
        bytes=line["bytes"], op=(STORE, UPDATE)[route["operation"]], source=source, region=route["destination_region"],
        wf=line["wf"], wg=(line["wg"] + route["wg_offset"]) % (1 << tracker.wg_bits), device=route["device"])
