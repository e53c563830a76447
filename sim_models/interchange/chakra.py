"""Chakra execution traces (MLCommons, schema/protobuf/et_def.proto): GEMMs whose outputs a collective takes.

A trace is of one rank: nodes that compute or communicate, and what each depends on. Read are its protobuf form,
messages each after its length, and its JSON form, as Chakra's jsonizer prints it (object after object) or as a list.
Names are of the schema, or as protobuf writes them in JSON (`dataDeps`).
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..bounded import read_bounded, reading
from ..errors import BadInput, Key
from ..workloads import Workload

_ALL_REDUCE, _ALL_GATHER, _ALL_TO_ALL, _REDUCE_SCATTER = 0, 2, 6, 7  #: CollectiveCommType
_TYPES = {name: number for number, name in enumerate(
    ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
     "COMM_RECV_NODE", "COMM_COLL_NODE"))}
_COLLECTIVES = {"ALL_REDUCE": _ALL_REDUCE, "ALL_GATHER": _ALL_GATHER, "ALL_TO_ALL": _ALL_TO_ALL,
                "REDUCE_SCATTER": _REDUCE_SCATTER}
#: What follows the GEMM of each operator of `t3 run`.
_AFTER = {"gemm-rs": (_ALL_REDUCE, _REDUCE_SCATTER), "gemm-ar": (_ALL_REDUCE,), "gemm-ag": (_ALL_GATHER,),
          "gemm-a2a": (_ALL_TO_ALL,)}
_FARTHEST = 64  #: dependencies from a collective back to its GEMM: what lies between works element by element
_LONGEST_SHAPES = 4096  #: characters of the shapes of a node's inputs
_COMPUTES, _COLLECTIVE = _TYPES["COMP_NODE"], _TYPES["COMM_COLL_NODE"]
#: Formats of two bytes and of four, as PyTorch and others call them.
_FORMATS = (("bfloat16", "bf16"), ("bf16", "bf16"), ("half", "fp16"), ("float16", "fp16"), ("fp16", "fp16"),
            ("float32", "fp32"), ("float", "fp32"), ("fp32", "fp32"))
_NAMES = {number: f"{name.lower().replace('_', '-')}" for name, number in _COLLECTIVES.items()}
_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}


class ChakraError(BadInput):
    """A file that is no trace, or one in which nothing can be run. The message names the file and what is wrong."""


@dataclass(frozen=True)
class Node:
    """Fields of a node that are used."""

    id: int
    name: str
    type: int
    after: tuple[int, ...]  #: data dependencies, then others
    shapes: str  #: of its inputs, as the trace has them
    types: str
    collective: int | None
    bytes: int


@dataclass(frozen=True)
class Found:
    """A GEMM and the collective of its output, as often as the trace has them."""

    gemm: str
    collective: str
    workload: Workload
    count: int


def chakra_workloads(path: str, tp: int, operator: str = "gemm-rs") -> list[Found]:
    """Return the different GEMMs whose outputs a collective among `tp` ranks takes, in the order of the trace.

    Which collectives: an all-reduce or a reduce-scatter, and for other operators of `t3 run` theirs. Raises BadInput.
    """
    file, shown = Path(path), Key("layer.chakra", repr(path[:60]))
    nodes: dict[int, Node] = {}
    with reading(shown, "a Chakra trace (JSON or protobuf)", ChakraError):
        for node in _nodes(read_bounded(file)):
            if node.id in nodes:
                raise ValueError(f"node {node.id} is there twice")
            nodes[node.id] = node
        taken = [node for node in nodes.values() if node.type == _COLLECTIVE and node.collective in _AFTER[operator]]
        pairs = [(node, pair) for node in taken if (pair := _producer(node, nodes, tp, operator)) is not None]
    found: dict[Workload, Found] = {}
    for node, (gemm, workload) in pairs:
        before = found.get(workload)
        found[workload] = Found(gemm.name, node.name, workload, before.count + 1 if before else 1)
    if not found:
        raise ChakraError(shown, ": no GEMM's whole output goes to "
                          f"{' or '.join(_NAMES[one] for one in _AFTER[operator])} (",
                          Key("layer.operator", operator), f"); of {len(nodes)} nodes "
                          f"{sum(node.type == _COMPUTES for node in nodes.values())} compute, "
                          f"{sum(node.type == _COLLECTIVE for node in nodes.values())} are collectives")
    return list(found.values())


def _producer(collective: Node, nodes: Mapping[int, Node], tp: int, operator: str) -> tuple[Node, Workload] | None:
    """Find the nearest GEMM that a collective depends on whose output has its bytes.

    Other collectives end the search.
    """
    seen, front = {collective.id}, list(collective.after)
    for _ in range(_FARTHEST):
        following: list[int] = []
        for number in front:
            if number in seen or number not in nodes:
                continue
            seen.add(number)
            node = nodes[number]
            if node.type == _COLLECTIVE:
                continue
            workload = _gemm(node, collective.bytes, tp, operator)
            if workload is not None:
                return node, workload
            following += node.after
        front = following
    return None


def _gemm(node: Node, size_bytes: int, tp: int, operator: str) -> Workload | None:
    """Return the GEMM that a computing node is, if its output has this many bytes.

    Its inputs are [.., M, K] times [K, N], or [N, K] of a linear layer; a bias may come with it. Where each rank makes
    a part of the tokens, M is that of all.
    """
    dtype = next((name for word, name in _FORMATS if word in node.types.lower()), "fp16")
    for left, right in _pairs(node) if node.type == _COMPUTES else ():
        tokens = 1
        for extent in left[:-1]:
            tokens *= extent
        if left[-1] not in right:
            continue
        for k, n in (right, right[::-1]):
            if k == left[-1] and tokens * n * _BYTES[dtype] == size_bytes:
                rows = tokens * tp if operator in ("gemm-ag", "gemm-a2a") else tokens
                return Workload("chakra", node.name or "gemm", tp, rows, n, k, dtype)
    return None


def _pairs(node: Node) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Give the inputs that lie side by side of which the second is a matrix."""
    try:
        if len(node.shapes) > _LONGEST_SHAPES:
            raise ValueError
        shapes = ast.literal_eval(node.shapes) if node.shapes else []
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"node {node.id}: shapes {node.shapes[:40]!r} are no list") from None
    tensors = [tuple(shape) for shape in shapes if isinstance(shape, (list, tuple)) and len(shape) >= 2
               and all(type(extent) is int and extent > 0 for extent in shape)] if isinstance(shapes, list) else []
    return ((left, right) for left, right in zip(tensors, tensors[1:]) if len(right) == 2)


def _nodes(content: bytes) -> Iterator[Node]:
    """Read the nodes of a trace in whichever form. Raises ValueError."""
    objects = _json_objects(content) if content.lstrip()[:1] in (b"{", b"[") else _messages(content)
    for number, one in enumerate(objects):
        if not isinstance(one, dict):
            raise ValueError(f"object {number} is not a node")
        if "id" in one or "type" in one:  # the metadata, which come first, have neither
            yield _node(one, number)


def _json_objects(content: bytes) -> Iterator[object]:
    text, at, decoder = content.decode("utf-8"), 0, json.JSONDecoder()
    blank = re.compile(r"[\s,]*")
    while (at := blank.match(text, at).end()) < len(text):  # type: ignore
        one, at = decoder.raw_decode(text, at)
        if isinstance(one, dict) and isinstance(one.get("nodes"), list):
            one = one["nodes"]
        yield from one if isinstance(one, list) else [one]


def _node(one: dict, number: int) -> Node:
    def field(name: str, default: object) -> object:
        camel = re.sub("_(.)", lambda found: found[1].upper(), name)
        return one.get(name, one.get(camel, default))

    def whole(value: object, what: str, names: Mapping[str, int] = {}) -> int:
        if isinstance(value, str):
            value = names.get(value, int(value) if re.fullmatch("[0-9]{1,20}", value) else value)
        if type(value) is not int or value < 0:
            raise ValueError(f"object {number}: {what} = {repr(value)[:40]} is not possible: "
                             f"{'a name of the schema or ' if names else ''}a whole number from 0")
        return value

    def each(value: object, what: str) -> list:
        if not isinstance(value, list):
            raise ValueError(f"object {number}: {what} is not a list")
        return value
    attributes = {}
    for attribute in each(field("attr", []), "attr"):
        if not isinstance(attribute, dict) or not isinstance(attribute.get("name"), str):
            raise ValueError(f"object {number}: attr has what is no attribute")
        values = [value for key, value in attribute.items() if key not in ("name", "doc_string", "docString")]
        if values:
            attributes[attribute["name"]] = values[0]
    inputs = field("inputs", {})
    shapes, types = (inputs.get(key, "") if isinstance(inputs, dict) else "" for key in ("shapes", "types"))
    kind, collective = whole(field("type", 0), "type", _TYPES), attributes.get("comm_type")
    return Node(
        whole(field("id", 0), "id"), _plain(str(field("name", "")))[:60], kind,
        tuple(whole(id, "a dependency") for name in ("data_deps", "ctrl_deps") for id in each(field(name, []), name)),
        shapes if isinstance(shapes, str) else json.dumps(shapes), str(types),
        None if kind != _COLLECTIVE or collective is None else whole(collective, "comm_type", _COLLECTIVES),
        whole(attributes.get("comm_size", 0), "comm_size") if kind == _COLLECTIVE else 0)


def _plain(text: str) -> str:
    """Write text that is printed as it is, on one line."""
    return re.sub(r"[^ -~]", "?", text)


def _messages(content: bytes) -> Iterator[object]:
    """Read the protobuf form: the metadata and the nodes, each after its length."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    at, first = 0, True
    while at < len(content):
        length = shift = 0
        while True:
            if at == len(content) or shift > 28:
                raise ValueError(f"no message's length at byte {at}")
            byte, at = content[at], at + 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if at + length > len(content):
            raise ValueError(f"a message of {length:,} bytes at byte {at} is cut off")
        message = _node_class()()
        if not first:
            try:
                message.ParseFromString(content[at:at + length])
            except DecodeError:
                raise ValueError(f"no node at byte {at}") from None
            yield {"id": 0, **MessageToDict(message, preserving_proto_field_name=True)}
        at, first = at + length, False


@cache
def _node_class() -> type:
    """Make the message of a node: the schema's fields that are read, under their numbers."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    # proto2 knows of a number whether it is there: an all-reduce is 0.
    file = descriptor_pb2.FileDescriptorProto(name="t3sim_chakra.proto", package="t3sim_chakra", syntax="proto2")
    kinds = {"uint64": 4, "int64": 3, "int32": 5, "string": 9, "uint32": 13, "message": 11}

    def message(name: str, fields: list[tuple[str, int, str, bool, str | None]]) -> None:
        added = file.message_type.add(name=name)
        for field, number, kind, repeated, of in fields:
            added.field.add(name=field, number=number, type=kinds[kind], label=3 if repeated else 1,
                            type_name=f".t3sim_chakra.{of}" if of else None)
    message("Attribute", [("name", 1, "string", False, None), ("int32_val", 7, "int32", False, None),
                          ("int64_val", 9, "int64", False, None), ("uint32_val", 11, "uint32", False, None),
                          ("uint64_val", 13, "uint64", False, None), ("string_val", 29, "string", False, None)])
    message("Inputs", [("shapes", 2, "string", False, None), ("types", 3, "string", False, None)])
    message("Node", [("id", 1, "uint64", False, None), ("name", 2, "string", False, None),
                     ("type", 3, "uint32", False, None), ("ctrl_deps", 4, "uint64", True, None),
                     ("data_deps", 5, "uint64", True, None), ("inputs", 8, "message", False, "Inputs"),
                     ("attr", 10, "message", True, "Attribute")])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t3sim_chakra.Node"))
