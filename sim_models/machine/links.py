"""Sections about links: a GPU's to other GPUs of its node, and its network card's."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from t3sim.machine.levels import CLUSTER, COMMERCIAL, CYCLE, ENGINES, NETWORK, TILES
from t3sim.machine.section import (
    Bandwidth,
    NotNegative,
    Positive,
    Section,
    Share,
    Wait,
    needed_by,
    read_by,
    within,
)


class LinkSection(Section):
    """A GPU's link, in one direction: on the cycle level the ring's, to the next GPU."""

    #: Bandwidth of the port, or of the link to one GPU.
    bandwidth_gb_per_s: Bandwidth = needed_by(CYCLE, TILES, NETWORK, ENGINES)
    latency_ns: Wait = needed_by(CYCLE, TILES, NETWORK)
    #: Buffer for packets that wait for the link.
    egress_buffer_bytes: Annotated[int, within(64, 1 << 26)] = needed_by(CYCLE)
    head_bytes: Annotated[int, within(1, 256)] = needed_by(CYCLE)  #: size of a dispatch window's head on the link
    #: Buffer before the egress buffer; a store that has entered it frees its compute unit; None: as large as that
    #: buffer.
    store_buffer_bytes: Annotated[int, within(64, 1 << 26)] | None = read_by(CYCLE)
    #: Switch: a port into a switch; full: a link to each other GPU; host: a port into one of 2 joined CPUs.
    kind: Literal["switch", "full", "host"] = needed_by(TILES)
    store_efficiency: Share = needed_by(TILES, ENGINES)  #: share of the bandwidth for loads and stores of compute units
    #: Share of the bandwidth for a copy engine that writes to a peer.
    push_efficiency: Share = needed_by(TILES, ENGINES)
    pull_efficiency: Share = needed_by(TILES)  #: share for a copy engine that reads from a peer
    between_hosts_gb_per_s: Positive | None = read_by(TILES)  #: host only: bandwidth from one CPU to the other

    @model_validator(mode="after")
    def _hosts_are_joined(self) -> "LinkSection":
        if (self.kind == "host") != (self.between_hosts_gb_per_s is not None):
            raise ValueError(f"kind = {self.kind!r}: kind host needs between_hosts_gb_per_s, and no other kind has it")
        return self

    @property
    def stores_bytes(self) -> int:
        """Bytes of compute units' stores that may wait for the egress buffer."""
        return self.egress_buffer_bytes if self.store_buffer_bytes is None else self.store_buffer_bytes


class NetworkSection(Section):
    """A GPU's network card, in one direction, where nodes are joined."""

    bandwidth_gb_per_s: Bandwidth = needed_by(CYCLE, TILES, NETWORK)
    latency_ns: Wait
    efficiency: Share = needed_by(TILES)


class Tier(Section):
    """One level of the closed form's network, per GPU and direction: within nodes, or between them."""

    bandwidth_gb_per_s: Positive = needed_by(CLUSTER)
    efficiency: Share  #: share of the bandwidth for large messages
    step_ns: NotNegative  #: latency of one step of a collective, including software

    @property
    def bytes_per_ns(self) -> float:
        return self.bandwidth_gb_per_s * self.efficiency


_Place = Annotated[int, within(0, 63)]
_Pair = Annotated[tuple[_Place, _Place, Annotated[int, within(1, 64)]], Field(strict=False)]


class WiresSection(Section):
    """Wires that join the GPUs of a node, each direction."""

    #: Switch: a port; full: a link to each other GPU; graph: listed links; host: a port into the CPUs.
    kind: Literal["switch", "full", "graph", "host"]
    gb_per_s: Positive = needed_by(COMMERCIAL)  #: bandwidth of a GPU's port, or of one link
    latency_ns: NotNegative  #: latency of a remote access with its answer
    pairs: Annotated[tuple[_Pair, ...], Field(strict=False)] = ()  #: graph only: GPU, GPU, number of links
    store_efficiency: Share  #: share of the bandwidth for large streams of stores by compute units
    all_efficiency: Share  #: share for loads or stores at all other GPUs at once
    copy_efficiency: Share  #: share of the bandwidth for copy engines
    copy_ns: NotNegative  #: of one copy, without its bytes

    @model_validator(mode="after")
    def _links_are_listed(self) -> "WiresSection":
        if (self.kind == "graph") != bool(self.pairs):
            raise ValueError(f"kind = {self.kind!r}: kind graph needs pairs, and no other kind has them")
        return self


class Cards(Section):
    """Network cards, per GPU and direction."""

    gb_per_s: Positive = needed_by(COMMERCIAL)
    efficiency: Share  #: share of the bandwidth for collectives, whose channels keep every card busy
    pair_efficiency: Share  #: share of the bandwidth for one send
    hop_ns: NotNegative
    message_ns: NotNegative  #: time of a send that its receiver waits for
