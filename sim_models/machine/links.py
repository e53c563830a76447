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

    #: Of the port, or of the link to one GPU.
    bandwidth_gb_per_s: Bandwidth = needed_by(CYCLE, TILES, NETWORK, ENGINES)
    latency_ns: Wait = needed_by(CYCLE, TILES, NETWORK)
    egress_buffer_bytes: Annotated[int, within(64, 1 << 26)] = needed_by(CYCLE)  #: for packets that wait for the link
    head_bytes: Annotated[int, within(1, 256)] = needed_by(CYCLE)  #: of a dispatch window's head on the link
    #: Before the egress buffer: a store that has entered it frees its compute unit; None: of the same size.
    store_buffer_bytes: Annotated[int, within(64, 1 << 26)] | None = read_by(CYCLE)
    #: switch: a port into a switch; full: a link to each other GPU; host: a port into a CPU, two CPUs joined.
    kind: Literal["switch", "full", "host"] = needed_by(TILES)
    store_efficiency: Share = needed_by(TILES, ENGINES)  #: of loads and stores of compute units
    push_efficiency: Share = needed_by(TILES, ENGINES)  #: of a copy engine that writes to a peer
    pull_efficiency: Share = needed_by(TILES)  #: of a copy engine that reads from a peer
    between_hosts_gb_per_s: Positive | None = read_by(TILES)  #: host only: from one CPU to the other

    @model_validator(mode="after")
    def _hosts_are_joined(self) -> "LinkSection":
        if (self.kind == "host") != (self.between_hosts_gb_per_s is not None):
            raise ValueError(f"kind = {self.kind!r}: between_hosts_gb_per_s goes with kind host, and only there")
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
    efficiency: Share  #: of the bandwidth, for large messages
    step_ns: NotNegative  #: latency of one step of a collective, software included

    @property
    def bytes_per_ns(self) -> float:
        return self.bandwidth_gb_per_s * self.efficiency


_Place = Annotated[int, within(0, 63)]
_Pair = Annotated[tuple[_Place, _Place, Annotated[int, within(1, 64)]], Field(strict=False)]


class WiresSection(Section):
    """Wires that join the GPUs of a node, each direction."""

    #: switch: a port; full: a link to each other GPU; graph: links as listed; host: a port into the CPUs.
    kind: Literal["switch", "full", "graph", "host"]
    gb_per_s: Positive = needed_by(COMMERCIAL)  #: of a GPU's port, or of one link
    latency_ns: NotNegative  #: of a remote access and its answer
    #: graph only: GPU, GPU, how many links.
    pairs: Annotated[tuple[_Pair, ...], Field(strict=False)] = ()
    store_efficiency: Share  #: of large streams of stores by compute units
    all_efficiency: Share  #: of loads or stores at all other GPUs at once
    copy_efficiency: Share  #: of copy engines
    copy_ns: NotNegative  #: of one copy besides its bytes

    @model_validator(mode="after")
    def _links_are_listed(self) -> "WiresSection":
        if (self.kind == "graph") != bool(self.pairs):
            raise ValueError(f"kind = {self.kind!r}: pairs goes with kind graph, and only there")
        return self


class Cards(Section):
    """Network cards, per GPU and direction."""

    gb_per_s: Positive = needed_by(COMMERCIAL)
    efficiency: Share  #: of collectives, whose channels keep every card busy
    pair_efficiency: Share  #: of one send
    hop_ns: NotNegative
    message_ns: NotNegative  #: of a send that its receiver waits for
