"""Which algorithm a library takes for a collective, by size: the fastest of those that it has."""

import re
from dataclasses import dataclass

from t3sim.analytic.libraries.direct import direct_ns, ways
from t3sim.analytic.libraries.in_switch import BLOCKS, in_switch_ns, transfer_ns
from t3sim.analytic.libraries.links import link_gb_per_s, pair_gb_per_s
from t3sim.analytic.rings import PASSES, protocol_ring_ns, protocol_tree_ns, protocols
from t3sim.base.errors import BadInput
from t3sim.machine import Machine

#: GPUs of a host; more than these share a switch with other hosts.
_BOX = 16
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv")


class NoSuchWay(BadInput):
    """A collective that a machine's libraries do not have. The message says what is missing."""


@dataclass(frozen=True)
class Chosen:
    """The way that a library takes."""

    algorithm: str
    ns: float


def library_collective(machine: Machine, kind: str, gpus: int, size: float, nodes: int = 1,
                       library: str = "", algorithm: str = "") -> Chosen:
    """Return what a library takes, and its time; `size`: bytes of the whole tensor. Raises `NoSuchWay`.

    `library` and `algorithm` in the words of a source: what says nothing is the vendor's library as it comes.
    """
    if kind not in KINDS:
        raise NoSuchWay(f"no library's {kind[:40]!r} is modelled: {', '.join(KINDS)}")
    if gpus <= machine.gpus and machine.gpus > _BOX:
        nodes = 1  # hosts of a rack, whose GPUs share one switch
    _check(machine, gpus, nodes)
    words = f"{library} {algorithm}".lower()
    if kind == "send_recv":
        return _send(machine, size, nodes)
    if nodes == 1 and re.search(r"multimem|multicast|nvls multimem|one-shot mult|two-shot mult", words):
        return _multicast(machine, kind, gpus, size, words)
    if nodes == 1 and re.search(r"msccl|custom|device api|symmetric|one-shot|two-shot|direct|quick", words):
        if "proxy" in words or kind == "all_gather" and "kernel 3" in words:
            raise NoSuchWay("copies by a proxy thread of the host, which has no model")
        return Chosen("direct", direct_ns(machine, kind, gpus, size))
    if nodes == 1 and re.search(r"sdma|copy engine|zero cta|\bce\b", words):
        return Chosen("copy engines", copies_ns(machine, kind, gpus, size))
    return _vendor(machine, kind, gpus, size, nodes, words)


def _check(machine: Machine, gpus: int, nodes: int) -> None:
    """Refuse GPUs that a machine has not."""
    if gpus < 2 or nodes < 1 or gpus % nodes or gpus // nodes > machine.gpus:
        raise NoSuchWay(f"{machine.name} has up to {machine.gpus} GPUs in a node")
    if nodes > 1 and machine.cards is None:
        raise NoSuchWay(f"{machine.name} has no network cards that are known")


def _multicast(machine: Machine, kind: str, gpus: int, size: float, words: str) -> Chosen:
    if machine.in_switch is None:
        raise NoSuchWay(f"the switch of {machine.name} adds nothing")
    blocks = re.search(r"(\d+) (?:cta|thread block|block|sm)", words)
    how = {"shots": 1 if "one-shot" in words else 2, "flags": "flag" in words, "graph": "graph" in words}
    return Chosen("in-switch", in_switch_ns(machine, kind, gpus, size, int(blocks[1]) if blocks else BLOCKS, **how))


def _send(machine: Machine, size: float, nodes: int) -> Chosen:
    simple = machine.rings.simple
    if nodes > 1:
        cards = machine.cards
        return Chosen("send", cards.message_ns + size / (cards.gb_per_s * cards.pair_efficiency))
    rate = link_gb_per_s(machine.wires) * simple.efficiency
    return Chosen("send", min(one.base_ns + one.hop_ns + size / min(rate * share, one.most_gb_per_s)
                              for one, share in ((machine.rings.ll, 0.5), (simple, 1.0))))


def copies_ns(machine: Machine, kind: str, gpus: int, size: float) -> float:
    """Return the time of copy engines, which add nothing: a kernel then adds what has come."""
    wires = machine.wires
    once = wires.copy_ns + size / gpus / (pair_gb_per_s(machine, gpus) * wires.copy_efficiency)
    adds = 0.0
    if kind in ("all_reduce", "reduce_scatter"):
        adds = machine.kernels.launch_ns + (gpus + 1) * size / gpus / machine.memory_bytes_per_ns
    return PASSES.get(kind, 1) * once + adds


def _vendor(machine: Machine, kind: str, gpus: int, size: float, nodes: int, words: str) -> Chosen:
    """Return the vendor's library's choice."""
    found: dict[str, float] = {}
    if kind == "all_to_all":
        if nodes > 1:
            raise NoSuchWay("all-to-alls over several nodes have no model")
        rate = pair_gb_per_s(machine, gpus) * machine.rings.simple.efficiency
        found["direct"] = machine.rings.simple.base_ns + machine.rings.simple.hop_ns + size / gpus / rate
    else:
        for name, one in protocols(machine).items():
            found[f"ring, {name}"] = protocol_ring_ns(machine, one, kind, gpus, size, nodes)
            if kind == "all_reduce":
                found[f"tree, {name}"] = protocol_tree_ns(machine, one, gpus, size, nodes)
        # A framework's buffers are not registered with the switch: its library stays with rings.
        if machine.in_switch is not None and nodes == 1 and kind in ("all_reduce", "all_gather", "reduce_scatter") \
                and gpus > 2 and not re.search(r"torch|\bring\b|\btree\b", words):
            found["in-switch"] = machine.rings.in_switch_base_ns + transfer_ns(machine, kind, gpus, size)
        if newer := re.search(r"2\.(\d+)", words):
            if int(newer[1]) >= 27 and nodes == 1:  # kernels over symmetric memory
                found |= {f"symmetric, {name}": ns - machine.rings.launch_ns
                          for name, ns in ways(machine, kind, gpus, size).items()}
    if "tree" in words.split() or "ring" in words.split():
        found = {name: ns for name, ns in found.items() if name.split(",")[0] in words.split()} or found
    algorithm = min(found, key=found.__getitem__)
    ns = machine.rings.launch_ns + found[algorithm]
    return Chosen(algorithm, ns if algorithm.startswith("symmetric") else max(machine.rings.call_ns, ns))
