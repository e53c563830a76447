"""Topologies by a short text, as options and machine files give them: ring:8, full:8, torus:8x16, nodes:2x8."""

import re
from collections.abc import Callable

from ..errors import Key
from .fully_connected import fully_connected
from .multi_node import multi_node
from .ring import ring
from .switch import switch
from .topology import Topology, TopologyError
from .torus import torus

_KINDS: dict[str, tuple[str, Callable[..., Topology]]] = {
    "ring": ("N", ring), "full": ("N", fully_connected), "switch": ("N", switch), "torus": ("RxC", torus),
    "nodes": ("NxG", multi_node)}
_LARGEST = 1024  #: GPUs


def named_topology(text: str) -> Topology:
    """Return the topology that `text` describes. Raises TopologyError with what is allowed."""
    kind, _, size = text.partition(":")
    shape, build = _KINDS.get(kind, ("", None))
    pattern = r"(\d{1,4})x(\d{1,4})" if "x" in shape else r"(\d{1,4})"
    numbers = re.fullmatch(pattern, size, re.ASCII)
    if build is None or numbers is None:
        allowed = ", ".join(f"{name}:{form}" for name, (form, _) in _KINDS.items())
        raise TopologyError(Key("topology", repr(text[:40])), f" is unknown: allowed are {allowed}")
    lengths = [int(number) for number in numbers.groups()]
    nodes = lengths[0] * lengths[-1] if len(lengths) > 1 else lengths[0]
    if not 2 <= nodes <= _LARGEST:
        raise TopologyError(Key("topology", repr(text)), f" has {nodes} GPUs: 2 to {_LARGEST} are possible")
    if kind == "nodes" and lengths[0] < 2:
        raise TopologyError(Key("topology", repr(text)),
                            f" joins {lengths[0]} nodes: at least 2 are needed, full:N is one")
    return build(*lengths)
