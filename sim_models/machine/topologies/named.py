"""Topologies by a short text, as options and machine files give them: ring:8, full:8, torus:8x16, nodes:2x8."""

import re
from collections.abc import Callable

from t3sim.machine.topologies.fully_connected import fully_connected
from t3sim.machine.topologies.multi_node import multi_node
from t3sim.machine.topologies.ring import ring
from t3sim.machine.topologies.switch import switch
from t3sim.machine.topologies.topology import Topology, TopologyError
from t3sim.machine.topologies.torus import torus

#: Of each kind: its form, a function that builds it, and a function that returns its largest number of links.
_KINDS: dict[str, tuple[str, Callable[..., Topology], Callable[..., int]]] = {
    "ring": ("N", ring, lambda gpus: 2 * gpus), "full": ("N", fully_connected, lambda gpus: gpus * (gpus - 1)),
    "switch": ("N", switch, lambda gpus: 2 * gpus), "torus": ("RxC", torus, lambda rows, columns: 4 * rows * columns),
    "nodes": ("NxG", multi_node, lambda groups, places: groups * places * (places + 1))}
_LARGEST = 1 << 17  #: GPUs
_MOST_LINKS = 1_000_000


def named_topology(text: str) -> Topology:
    """Return the topology that `text` describes. Raises TopologyError, which lists the allowed forms."""
    kind, _, size = text.partition(":")
    shape, build, links = _KINDS.get(kind, ("", None, None))
    pattern = r"(\d{1,6})x(\d{1,6})" if "x" in shape else r"(\d{1,6})"
    numbers = re.fullmatch(pattern, size, re.ASCII)
    if build is None or links is None or numbers is None:
        allowed = ", ".join(f"{name}:{form}" for name, (form, *_) in _KINDS.items())
        raise TopologyError(f"topology = {text[:40]!r} is unknown: allowed are {allowed}")
    lengths = [int(number) for number in numbers.groups()]
    nodes = lengths[0] * lengths[-1] if len(lengths) > 1 else lengths[0]
    if not 2 <= nodes <= _LARGEST:
        raise TopologyError(f"topology = {text!r} has {nodes} GPUs: 2 to {_LARGEST} are possible")
    if kind == "nodes" and lengths[0] < 2:
        raise TopologyError(f"topology = {text!r} joins {lengths[0]} nodes: at least 2 are needed, full:N is one")
    if (link_count := links(*lengths)) > _MOST_LINKS:
        raise TopologyError(f"topology = {text!r} has {link_count} links: up to {_MOST_LINKS} are possible")
    return build(*lengths)
