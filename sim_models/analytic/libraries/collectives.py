"""Collectives of libraries on commercial GPUs: the algorithms' times, and the library's choice by size.

Besides rings and trees there are kernels that load or store at all other GPUs (what serving frameworks have for small
messages), copies by engines, sums and copies in the switch, Track & Trigger, and exchanges of tokens.

A GPU loads a sum from a multicast address: the switch asks all GPUs, adds, and answers; a store there goes to all. Each
packet has a header, and a request or an acknowledgement of a header's size goes the other way. For a reduce-scatter of
S bytes on n GPUs a GPU sends S and gets S/n, for an all-gather it sends S/n and gets S, for an all-reduce both. So one
share of headers gives all three rates. A thread block keeps `IN_FLIGHT` bytes in flight: few blocks do not
fill the wires.
"""

import re
from dataclasses import dataclass

from t3sim.analytic.gemm import BYTES
from t3sim.analytic.rings import (
    PASSES,
    link_gb_per_s,
    pair_gb_per_s,
    protocol_ring_ns,
    protocol_tree_ns,
    protocols,
    ring_gb_per_s,
)
from t3sim.base.errors import BadInput
from t3sim.machine import Machine
from t3sim.machine.libraries import InSwitch

#: GPUs of a host; more than these share a switch with other hosts.
_BOX = 16
#: Bytes that a thread block of 1,024 threads has in flight; the first of them come within the latency.
IN_FLIGHT = 16 << 10
BLOCKS = 16  #: thread blocks if a source does not say
#: Of the wires within a node: a flag and a copy out of a buffer for each token.
_WITHIN = 0.6
#: Kernels by the words of sources, looked for in this order; the vendor's library has the rest.
_NAMED = (("multicast", r"multimem|multicast"),
          ("direct", r"msccl|custom|device api|symmetric|one-shot|two-shot|direct|quick"),
          ("copy engines", r"sdma|copy engine|zero.?cta|\bce\b"))
#: Words of an algorithm, its protocol and its setup that have a meaning here, or none for the time.
_ALGORITHMS = re.compile(
    r"\b(?:nvls|multimem|multicast|ring|tree|ll|ll128|simple|(?:one|two)-shot|direct|symmetric|custom|kernel \d+|proxy"
    r"|registered windows|cuda graph|cumem off|calls queued|\d{1,3} gpus? per thread|(?:poison )?flags|sdma"
    r"|copy engines?|zero.?cta|ce"
    r"|\d+ (?:ctas?|thread blocks?|blocks?|sms?|channels)|default|nccl default|tuned|baseline|before|as printed)\b")
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv")
WAYS = ("ring", "direct")  #: of Track & Trigger


class NoSuchWay(BadInput):
    """A collective that a machine's libraries do not have. The message says what is missing."""


@dataclass(frozen=True)
class Chosen:
    """A library's choice of algorithm."""

    algorithm: str
    ns: float


def library_collective(machine: Machine, kind: str, gpus: int, size: float, nodes: int = 1,
                       library: str = "", algorithm: str = "") -> Chosen:
    """Return a library's choice and its time; `size`: bytes of the whole tensor. Raises `NoSuchWay`.

    `library` and `algorithm`: in the words of a source; none means the vendor's library with its defaults.
    """
    if kind not in KINDS:
        raise NoSuchWay(f"collective {kind[:40]!r} of a library has no model: allowed are {', '.join(KINDS)}")
    _check_words(library, algorithm)
    nodes = switched_nodes(machine, gpus, nodes)
    words = f"{library} {algorithm}".lower()
    if kind == "send_recv":
        return _send(machine, size, nodes)
    named = next((name for name, pattern in _NAMED if re.search(pattern, words)), None)
    if named and nodes > 1:
        raise NoSuchWay(f"{named} kernels over several nodes have no model: {library[:40]}")
    if named == "multicast":
        return _multicast(machine, kind, gpus, size, words)
    if named == "direct":
        if "proxy" in words or kind == "all_gather" and "kernel 3" in words:
            raise NoSuchWay("copies by a proxy thread of the host, which has no model")
        times_ns = ways(machine, kind, gpus, size)
        shots = [name for name in times_ns if re.search(rf"\b{name}\b", words)]  # all kernels, if none is named
        return Chosen("direct", min(times_ns[name] for name in shots or times_ns))
    if named == "copy engines":
        return Chosen("copy engines", copies_ns(machine, kind, gpus, size))
    return _vendor(machine, kind, gpus, size, nodes, words)


def _check_words(library: str, algorithm: str) -> None:
    """Raise `NoSuchWay` for a library or an algorithm without a model; remarks in parentheses count for nothing."""
    named = any(re.search(pattern, f"{library} {algorithm}".lower()) for _, pattern in _NAMED)
    if library and not named and not re.search(r"nccl|rccl|torch|calls queued", library.lower()):
        raise NoSuchWay(f"library {library[:40]!r} has no model: NCCL, RCCL, MSCCL++, custom one-shot and two-shot "
                        "kernels, multimem, SDMA and copy engines have")
    rest = _ALGORITHMS.sub("", re.sub(r"\([^)]*\)", "", algorithm.lower()))
    if unknown := re.search(r"[^\W\d_][\w-]*|\d+", rest):
        raise NoSuchWay(f"{unknown[0][:40]!r} of algorithm {algorithm[:40]!r} has no model: ring, tree, NVLS, LL, "
                        "LL128, Simple, one-shot and two-shot have; empty is the library's own choice")


def switched_nodes(machine: Machine, gpus: int, nodes: int) -> int:
    """Return the nodes that cards join: hosts of a rack share one switch. Raises `NoSuchWay`."""
    if gpus <= machine.gpus and machine.gpus > _BOX:
        nodes = 1
    if gpus < 2 or nodes < 1 or gpus % nodes or gpus // nodes > machine.gpus:
        raise NoSuchWay(f"{machine.name} has up to {machine.gpus} GPUs in a node")
    if nodes > 1 and machine.cards is None:
        raise NoSuchWay(f"{machine.name} has no known network cards")
    return nodes


def _multicast(machine: Machine, kind: str, gpus: int, size: float, words: str) -> Chosen:
    if machine.in_switch is None:
        raise NoSuchWay(f"the switch of {machine.name} cannot add")
    blocks = re.search(r"(\d+) (?:cta|thread block|block|sm)", words)
    options = {"shots": 1 if "one-shot" in words else 2, "flags": "flag" in words, "graph": "graph" in words}
    return Chosen("in-switch", in_switch_ns(machine, kind, gpus, size, int(blocks[1]) if blocks else BLOCKS, **options))


def _send(machine: Machine, size: float, nodes: int) -> Chosen:
    simple = machine.rings.simple
    if nodes > 1:
        cards = machine.cards
        return Chosen("send", cards.message_ns + size / (cards.gb_per_s * cards.pair_efficiency))
    rate = link_gb_per_s(machine.wires) * simple.efficiency
    return Chosen("send", min(one.base_ns + one.hop_ns + size / min(rate * share, one.most_gb_per_s)
                              for one, share in ((machine.rings.ll, 0.5), (simple, 1.0))))


def copies_ns(machine: Machine, kind: str, gpus: int, size: float) -> float:
    """Return the time of copy engines, which cannot add; a kernel adds the received parts."""
    wires = machine.wires
    pass_ns = wires.copy_ns + size / gpus / (pair_gb_per_s(machine, gpus) * wires.copy_efficiency)
    addition_ns = 0.0
    if kind in ("all_reduce", "reduce_scatter"):
        addition_ns = machine.kernels.launch_ns + (gpus + 1) * size / gpus / machine.memory_bytes_per_ns
    return PASSES.get(kind, 1) * pass_ns + addition_ns


def _vendor(machine: Machine, kind: str, gpus: int, size: float, nodes: int, words: str) -> Chosen:
    """Return the vendor's library's choice.

    Of its setup, in the words of a source: kernels over symmetric memory need buffers in registered windows, those in
    the switch memory that the library may allocate by cuMem. A CUDA graph or a queue of calls hides the host, and a
    thread that calls for several GPUs takes its time for each.
    """
    times_ns: dict[str, float] = {}
    if kind == "all_to_all":
        if nodes > 1:
            raise NoSuchWay("all-to-alls over several nodes have no model")
        rate = pair_gb_per_s(machine, gpus) * machine.rings.simple.efficiency
        times_ns["direct"] = machine.rings.simple.base_ns + machine.rings.simple.hop_ns + size / gpus / rate
    else:
        for name, protocol in protocols(machine).items():
            times_ns[f"ring, {name}"] = protocol_ring_ns(machine, protocol, kind, gpus, size, nodes)
            if kind == "all_reduce":
                times_ns[f"tree, {name}"] = protocol_tree_ns(machine, protocol, gpus, size, nodes)
        if machine.in_switch is not None and nodes == 1 and kind in ("all_reduce", "all_gather", "reduce_scatter") \
                and gpus > 2 and not re.search(r"cumem off|\bring\b|\btree\b", words):
            times_ns["in-switch"] = machine.rings.in_switch_base_ns + transfer_ns(machine, kind, gpus, size)
        if "registered windows" in words and nodes == 1:
            times_ns |= {f"symmetric, {name}": ns for name, ns in ways(machine, kind, gpus, size).items()}
    for named in ({"ring", "tree"}, {"ll", "ll128", "simple"}):
        if asked := named & {*re.findall(r"\w+", words)}:
            times_ns = {name: ns for name, ns in times_ns.items()
                        if asked & {*name.lower().split(", ")}} or times_ns
    algorithm = min(times_ns, key=times_ns.__getitem__)
    if "cuda graph" in words:
        return Chosen(algorithm, times_ns[algorithm])
    return Chosen(algorithm, max(_host_ns(machine, words), machine.rings.launch_ns + times_ns[algorithm]))


def _host_ns(machine: Machine, words: str) -> float:
    """Return the time from one call of the host to the next."""
    if thread := re.search(r"(\d{1,3}) gpus? per thread", words):
        return int(thread[1]) * machine.rings.thread_call_ns
    return 0.0 if "queued" in words else machine.rings.call_ns


def direct_ns(machine: Machine, kind: str, gpus: int, size: float) -> float:
    """Return the fastest of one shot, two shots, and packets that carry flags."""
    return min(ways(machine, kind, gpus, size).values())


def ways(machine: Machine, kind: str, gpus: int, size: float) -> dict[str, float]:
    """Return the time of each way, ns; `size`: of the whole tensor."""
    direct, part = machine.direct, size / gpus
    rate = pair_gb_per_s(machine, gpus) * direct.efficiency
    if kind == "all_to_all":  # stores, of which the next kernel needs all
        stores = pair_gb_per_s(machine, gpus) * machine.wires.all_efficiency
        return {"one-shot": direct.base_ns + direct.phase_ns + part / stores}
    if kind in ("all_gather", "reduce_scatter"):
        return {"one-shot": direct.base_ns + part / rate}
    times_ns = {"one-shot": direct.base_ns + size / rate,
                "two-shot": direct.base_ns + direct.phase_ns + 2 * part / rate}
    if direct.packets:
        times_ns["two-shot, packets"] = direct.base_ns + 4 * part / rate
    return times_ns


def symmetric_ns(machine: Machine, kind: str, gpus: int, size: float) -> float:
    """Return the time of kernels over symmetric memory."""
    times_ns = [direct_ns(machine, kind, gpus, size)]
    if machine.in_switch is not None and kind != "all_to_all":
        times_ns.append(in_switch_ns(machine, kind, gpus, size))
    return min(times_ns)


def in_switch_ns(machine: Machine, kind: str, gpus: int, size: float, blocks: int = BLOCKS, *,
                 shots: int = 2, flags: bool = False, graph: bool = False) -> float:
    """Return the time of a kernel of `blocks` thread blocks; `graph`: launched with others, so that nothing waits.

    `shots`: 1 if each GPU loads all sums itself, 2 if it stores its part of them at all; `flags`: data carries flags
    instead of a barrier between the two.
    """
    switch = machine.in_switch
    barriers = 1 if shots == 1 or flags else 2
    latency = (0.0 if graph else switch.launch_ns) + barriers * switch.barrier_ns + (switch.flag_ns if flags else 0.0)
    return latency + transfer_ns(machine, kind, gpus, size, blocks, shots)


def transfer_ns(machine: Machine, kind: str, gpus: int, size: float, blocks: int = BLOCKS, shots: int = 2) -> float:
    """Return the time in which the wires, or the thread blocks, move the bytes."""
    switch: InSwitch = machine.in_switch
    header, part = switch.header_share, size / gpus
    loaded_bytes = size if shots == 1 else part if kind != "all_gather" else 0.0  # sums of this GPU
    stored_bytes = part if kind != "reduce_scatter" and shots == 2 else 0.0
    sent_bytes = ((gpus * loaded_bytes if kind != "all_gather" else 0.0) * (1 + header) + stored_bytes * (1 + header)
                  + loaded_bytes * header)
    received_bytes = loaded_bytes * (1 + header) + gpus * stored_bytes * (1 + header) + gpus * loaded_bytes * header
    acknowledgement_bytes = gpus * stored_bytes * header
    wires_ns = max(sent_bytes + acknowledgement_bytes, received_bytes) / machine.wires.gb_per_s
    blocks_ns = (max(0.0, loaded_bytes - blocks * IN_FLIGHT) / switch.block_gb_per_s
                 + stored_bytes / switch.block_store_gb_per_s) / blocks
    return max(wires_ns, blocks_ns)


def triggered_ns(machine: Machine, kind: str, gpus: int, size: float, way: str = "ring",
                 trigger_ns: float = 0.0) -> float:
    """Return the time of a way, of `WAYS`; `size`: of the whole tensor, `trigger_ns`: of each step besides the wires.

    Around a ring a GPU's sums take a step per other GPU; directly all others send to an owner, which sends to all.
    """
    steps = gpus - 1 if way == "ring" else 1
    return PASSES.get(kind, 1) * (steps * (machine.wires.latency_ns + trigger_ns)
                                  + (gpus - 1) / gpus * size / triggered_rate(machine, gpus, way))


def triggered_rate(machine: Machine, gpus: int, way: str) -> float:
    """Return a GPU's rate to all others together, bytes per ns."""
    if way == "ring":
        return ring_gb_per_s(machine, gpus) * machine.rings.simple.efficiency
    return (gpus - 1) * pair_gb_per_s(machine, gpus) * machine.wires.all_efficiency


def exchange_ns(machine: Machine, gpus: int, nodes: int, token_bytes: float, wire_tokens: float,
                card_tokens: float) -> float:
    """Return the time in which each GPU sends copies of tokens evenly, to GPUs of nodes and through its card.

    `wire_tokens`: copies that a GPU sends to its node's GPUs, itself included; `card_tokens`: to all nodes, its own
    included. What stays on the GPU crosses no wire, and what stays in the node no card.
    """
    card = machine.cards.gb_per_s * machine.cards.efficiency if machine.cards else float("inf")
    node_ns = (1 - nodes / gpus) * wire_tokens * token_bytes / (ring_gb_per_s(machine, max(2, gpus // nodes)) * _WITHIN)
    card_ns = (1 - 1 / nodes) * card_tokens * token_bytes / card
    return machine.rings.simple.base_ns + machine.direct.base_ns + max(node_ns, card_ns)


def token_bytes(hidden: int, dtype: str) -> float:
    """Return the bytes of a token; 8-bit ones have a scale of 32 bits for each 128."""
    return hidden * (1 + 4 / 128) if dtype == "fp8" else BYTES.get(dtype, 2.0) * hidden
