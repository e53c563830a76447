"""Chakra execution traces (MLCommons, schema/protobuf/et_def.proto): GEMMs whose outputs are a collective's input.

A trace is of one rank: nodes that compute or communicate, and their dependencies. The reader takes the protobuf form,
in which each message follows its length, and the JSON form, object after object as Chakra's jsonizer prints it, or a
list. Names are the schema's, or protobuf's JSON form of them (`dataDeps`).
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from t3sim.base.bounded import read_bounded, reading
from t3sim.base.errors import BadInput
from t3sim.workload.workloads import Workload

_ALL_REDUCE, _ALL_GATHER, _ALL_TO_ALL, _REDUCE_SCATTER = 0, 2, 6, 7  #: CollectiveCommType
_TYPES = {name: number for number, name in enumerate(
    ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
     "COMM_RECV_NODE", "COMM_COLL_NODE"))}
_COLLECTIVES = {"ALL_REDUCE": _ALL_REDUCE, "ALL_GATHER": _ALL_GATHER, "ALL_TO_ALL": _ALL_TO_ALL,
                "REDUCE_SCATTER": _REDUCE_SCATTER}
#: Collectives that may follow the GEMM of each operator of `t3 run`.
_AFTER = {"gemm-rs": (_ALL_REDUCE, _REDUCE_SCATTER), "gemm-ar": (_ALL_REDUCE,), "gemm-ag": (_ALL_GATHER,),
          "gemm-a2a": (_ALL_TO_ALL,)}
_FARTHEST = 64  #: dependencies from a collective back to its GEMM, across element-wise nodes
_LONGEST_SHAPES = 4096  #: characters of the shapes of a node's inputs
_COMPUTES, _COLLECTIVE = _TYPES["COMP_NODE"], _TYPES["COMM_COLL_NODE"]
#: Formats of elements by the names of PyTorch and others; the first match counts. `_BYTES` has those that can be run.
_FORMATS = (("fp8", r"float8|fp8|e4m3|e5m2"), ("fp4", r"float4|fp4|e2m1"), ("bf16", r"bfloat16|bf16"),
            ("fp16", r"half|float16|fp16"), ("fp64", r"double|float64|fp64"), ("fp32", r"float|fp32|tf32"))
_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
#: Attributes with the number of a collective's ranks, and with the ranks themselves.
_GROUP_SIZES = ("pg_size", "group_size", "comm_group_size", "process_group_size", "world_size")
_GROUP_RANKS = ("pg_ranks", "group_ranks", "comm_group", "ranks", "involved_ranks")
#: Attributes that identify a group, and attributes that describe its purpose.
_GROUP_NAMES = ("pg_name", "process_group_name", "process_group", "pg", "pg_id", "group_name", "group_id", "group",
                "comm_group", "communicator", "comm_id", "comm_tag", "involved_dim")
_GROUP_WORDS = ("pg_desc", "process_group_desc", "group_desc")
_OF_TENSORS = re.compile(r"tensor|(^|[^a-z])tp([^a-z]|$)", re.IGNORECASE)
_NAMES = {number: f"{name.lower().replace('_', '-')}" for name, number in _COLLECTIVES.items()}


class ChakraError(BadInput):
    """A file that is no trace, or a trace without a GEMM that can be run. The message names the file and the fault."""


@dataclass(frozen=True)
class RankGroup:
    """Group of a collective's ranks, as far as a trace describes it."""

    name: str | None
    size: int | None
    ranks: tuple[int, ...] = ()
    words: str = ""  #: its name and purpose


@dataclass(frozen=True)
class ChakraNode:
    """A node, with the fields that the reader uses."""

    id: int
    name: str
    type: int
    after: tuple[int, ...]  #: data dependencies, then others
    shapes: str  #: of its inputs, in the trace's form
    types: str
    collective: int | None
    bytes: int
    group: RankGroup  #: of a collective


@dataclass(frozen=True)
class TraceGemm:
    """A GEMM and the collective of its output, with their number in the trace."""

    gemm: str
    collective: str
    workload: Workload
    count: int


def chakra_workloads(path: str, tp: int, operator: str = "gemm-rs",
                     messages: list[str] | None = None) -> list[TraceGemm]:
    """Return the different GEMMs whose outputs a collective of `tp` ranks takes, in the order of the trace.

    `operator`: of `t3 run`; it sets the collectives, by default an all-reduce or a reduce-scatter. `messages`: gets a
    line for GEMMs that are left out. Raises BadInput.
    """
    file, shown = Path(path), f"layer.chakra = {path[:60]!r}"
    nodes: dict[int, ChakraNode] = {}
    groups: dict[str | None, RankGroup] = {}  # of which some node has the size
    with reading(shown, "a Chakra trace (JSON or protobuf)", ChakraError):
        for node in _nodes(read_bounded(file), groups):
            if node.id in nodes:
                raise ValueError(f"node {node.id} appears twice")
            nodes[node.id] = node
            if node.group.name is not None and node.group.size is not None:
                groups.setdefault(node.group.name, node.group)
        collectives = [node for node in nodes.values()
                       if node.type == _COLLECTIVE and node.collective in _AFTER[operator]]
        pairs = [(node, *pair) for node in collectives if (pair := _producer(node, nodes, tp, operator)) is not None]
    group_of_pair = [groups.get(node.group.name, node.group) for node, _, _ in pairs]
    tensor_groups = _of_tensors(shown, list(dict.fromkeys(group_of_pair)), tp)
    chosen_pairs = [pair for pair, group in zip(pairs, group_of_pair) if group in tensor_groups]
    messages = [] if messages is None else messages
    if left_out := len(pairs) - len(chosen_pairs):
        other_groups = [group for group in group_of_pair if group not in tensor_groups]
        sizes = sorted({str(group.size or "unknown") for group in other_groups})
        names = ", ".join(repr(one) for one in dict.fromkeys(group.name for group in other_groups))[:80]
        reason = (f"other groups of {tp}: {names}" if sizes == [str(tp)] else
                  f"groups of {', '.join(sizes)[:60]} ranks, not {tp}" if any(group.size for group in tensor_groups) or
                  sizes != ["unknown"] else f"other groups: {names}")
        messages.append(f"left out: {left_out} of {len(pairs)} GEMMs, whose collectives are among {reason}")
    gemms: dict[Workload, TraceGemm] = {}
    for node, gemm, workload in chosen_pairs:
        if isinstance(workload, str):
            messages.append(f"left out: node {gemm.id}, {gemm.name}, whose operands are {workload}: allowed are "
                            f"{', '.join(_BYTES)}")
            continue
        earlier = gemms.get(workload)
        gemms[workload] = TraceGemm(gemm.name, node.name, workload, earlier.count + 1 if earlier else 1)
    if not gemms and messages:
        raise ChakraError(f"{shown}: {messages[-1].removeprefix('left out: ')}")
    if not gemms:
        raise ChakraError(f"{shown}: no GEMM's whole output goes to "
                          f"{' or '.join(_NAMES[one] for one in _AFTER[operator])} (layer.operator = {operator}); of "
                          f"{len(nodes)} nodes {sum(node.type == _COMPUTES for node in nodes.values())} compute, "
                          f"{sum(node.type == _COLLECTIVE for node in nodes.values())} are collectives")
    return list(gemms.values())


def _of_tensors(shown: str, groups: list[RankGroup], tp: int) -> list[RankGroup]:
    """Return the groups of tensor parallelism: of `tp` ranks, and of several the groups with the closest ranks.

    Without ranks it is the group whose name or purpose says so. Raises ChakraError if the trace does not tell.
    """
    candidates = [group for group in groups if group.size == tp] or [group for group in groups if group.size is None]
    if len({group.ranks or group.name for group in candidates}) < 2:
        return candidates
    if all(group.ranks for group in candidates):
        spreads = [max(group.ranks) - min(group.ranks) for group in candidates]
        return [group for group, spread in zip(candidates, spreads) if spread == min(spreads)]
    if named_tensor := [group for group in candidates if _OF_TENSORS.search(group.words)]:
        return named_tensor
    names = ", ".join(map(repr, dict.fromkeys(group.name for group in candidates)))[:80]
    reason = (f" of {tp} ranks each, and no node says which ranks they are (pg_ranks)" if candidates[0].size else
              ", and no node says how many ranks one has (pg_size)")
    raise ChakraError(f"{shown}: collectives of its GEMMs are among groups {names}{reason}")


def _producer(collective: ChakraNode, nodes: Mapping[int, ChakraNode], tp: int, operator: str
              ) -> tuple[ChakraNode, Workload | str] | None:
    """Find the nearest GEMM on which a collective depends and whose output has its bytes.

    Other collectives end the search.
    """
    visited, frontier = {collective.id}, list(collective.after)
    for _ in range(_FARTHEST):
        next_frontier: list[int] = []
        for number in frontier:
            if number in visited or number not in nodes:
                continue
            visited.add(number)
            node = nodes[number]
            if node.type == _COLLECTIVE:
                continue
            workload = _gemm(node, collective.bytes, tp, operator)
            if workload is not None:
                return node, workload
            next_frontier += node.after
        frontier = next_frontier
    return None


def _gemm(node: ChakraNode, size_bytes: int, tp: int, operator: str) -> Workload | str | None:
    """Return a node's GEMM if its output has this many bytes; a format that cannot be run is returned by its name.

    Its inputs are [.., M, K] times [K, N], or [N, K] of a linear layer, and possibly a bias. If each rank computes a
    part of the tokens, M counts all tokens.
    """
    for left, right, dtype in _pairs(node) if node.type == _COMPUTES else ():
        tokens = 1
        for extent in left[:-1]:
            tokens *= extent
        if left[-1] not in right:
            continue
        for k, n in (right, right[::-1]):
            sizes = (_BYTES[dtype],) if dtype in _BYTES else (1, 2, 4, 8)  # the size of other formats is not known
            if k == left[-1] and size_bytes in [tokens * n * size for size in sizes]:
                rows = tokens * tp if operator in ("gemm-ag", "gemm-a2a") else tokens
                return Workload("chakra", node.name or "gemm", tp, rows, n, k, dtype) if dtype in _BYTES else dtype
    return None


def _pairs(node: ChakraNode) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], str]]:
    """Yield adjacent inputs of which the second is a matrix, and their format."""
    shapes, types = _list(node, "shapes", node.shapes), _list(node, "types", node.types)
    tensors = [(tuple(shape), str(types[index]) if len(types) == len(shapes) else node.types)
               for index, shape in enumerate(shapes) if isinstance(shape, (list, tuple)) and len(shape) >= 2
               and all(type(extent) is int and extent > 0 for extent in shape)]
    for (left, left_type), (right, right_type) in zip(tensors, tensors[1:]):
        if len(right) == 2:
            formats = {next((name for name, word in _FORMATS if re.search(word, text.lower())), text[:40] or "fp16")
                       for text in (left_type, right_type)}
            yield left, right, next(iter(formats)) if len(formats) == 1 else " and ".join(sorted(formats))


def _list(node: ChakraNode, name: str, text: str) -> list:
    try:
        if len(text) > _LONGEST_SHAPES:
            raise ValueError
        values = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        if name == "types":  # a list of names without quotes
            return []
        raise ValueError(f"node {node.id}: {name} {text[:40]!r} are no list") from None
    return list(values) if isinstance(values, (list, tuple)) else []


def _nodes(content: bytes, groups: dict[str | None, RankGroup]) -> Iterator[ChakraNode]:
    """Read the nodes of a trace in either form; add groups that a node lists to `groups`. Raises ValueError."""
    objects = _json_objects(content) if content.lstrip()[:1] in (b"{", b"[") else _messages(content)
    for index, entry in enumerate(objects):
        if not isinstance(entry, dict):
            raise ValueError(f"object {index} is not a node")
        if "process_group:init" in str(entry.get("name")):
            inputs = entry.get("inputs")
            groups |= _listed_groups(str(inputs.get("values", "")) if isinstance(inputs, dict) else "")
        if "id" in entry or "type" in entry:  # the metadata at the beginning have neither
            yield _node(entry, index)


def _listed_groups(text: str) -> dict[str | None, RankGroup]:
    """Return the groups in the list that PyTorch records at their initialization."""
    groups: dict[str | None, RankGroup] = {}
    for entry in re.findall(r"\{[^{}]*\}", text.replace("\\", "")):
        name, words = (re.search(rf'"{key}"\s*:\s*"([^"]*)"', entry) for key in ("pg_name", "pg_desc"))
        size = re.search(r'"group_size"\s*:\s*(\d{1,9})', entry)
        rank_list = re.search(r'"ranks"\s*:\s*\[([^\]]*)\]', entry)
        ranks = _ranks(rank_list[1] if rank_list else "")
        count = int(size[1]) if size else len(ranks)
        if name and count:
            groups[name[1]] = RankGroup(name[1], count, ranks if len(ranks) == count else (),
                                        f"{name[1]} {words[1] if words else ''}")
    return groups


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d{1,9}", text)))


def _json_objects(content: bytes) -> Iterator[object]:
    text, position, decoder = content.decode("utf-8"), 0, json.JSONDecoder()
    blank = re.compile(r"[\s,]*")
    while (position := blank.match(text, position).end()) < len(text):  # type: ignore
        value, position = decoder.raw_decode(text, position)
        nodes = value.get("nodes") if isinstance(value, dict) else None
        of_torch = nodes is not None and ("schema" in value or isinstance(nodes, list) and any(
            isinstance(node, dict) and isinstance(node.get("ctrl_deps"), int) for node in nodes))
        events = value[0] if isinstance(value, list) and value else value
        if of_torch or isinstance(events, dict) and ("traceEvents" in events or {"ph", "ts"} <= events.keys()):
            kind = "a PyTorch execution trace" if of_torch else "a Kineto trace"
            raise ValueError(f"it is {kind}: convert it (chakra_trace_link, then chakra_converter PyTorch)")
        if isinstance(value, dict) and isinstance(value.get("nodes"), list):
            value = value["nodes"]
        yield from value if isinstance(value, list) else [value]


def _node(entry: dict, number: int) -> ChakraNode:
    def field(name: str, default: object) -> object:
        camel = re.sub("_(.)", lambda found: found[1].upper(), name)
        return entry.get(name, entry.get(camel, default))

    def whole_number(value: object, field_name: str, names: Mapping[str, int] = {}) -> int:
        if isinstance(value, str):
            value = names.get(value, int(value) if re.fullmatch("[0-9]{1,20}", value) else value)
        if type(value) is not int or value < 0:
            raise ValueError(f"object {number}: {field_name} = {repr(value)[:40]} is not possible: "
                             f"{'a name of the schema or ' if names else ''}a whole number from 0")
        return value

    def list_of(value: object, field_name: str) -> list:
        if not isinstance(value, list):
            raise ValueError(f"object {number}: {field_name} is not a list")
        return value
    attributes = {}
    for attribute in list_of(field("attr", []), "attr"):
        if not isinstance(attribute, dict) or not isinstance(attribute.get("name"), str):
            raise ValueError(f"object {number}: attr has an entry that is not an attribute")
        values = [value for key, value in attribute.items() if key not in ("name", "doc_string", "docString")]
        if values:
            attributes[attribute["name"]] = values[0]
    inputs = field("inputs", {})
    shapes, types = (inputs.get(key, "") if isinstance(inputs, dict) else "" for key in ("shapes", "types"))
    kind, collective = whole_number(field("type", 0), "type", _TYPES), attributes.get("comm_type")
    sizes = [whole_number(attributes[name], name) for name in _GROUP_SIZES if name in attributes]
    lists = [_ranks(json.dumps(attributes[name])) for name in _GROUP_RANKS
             if not re.fullmatch(r"\w*", str(attributes.get(name, "")))]  # a number or a word is a name
    size = next((count for count in (*sizes, *map(len, lists)) if count), None)
    group = next((_plain(str(attributes[name]))[:60] for name in _GROUP_NAMES if name in attributes), None)
    words = " ".join(_plain(str(attributes[name]))[:60] for name in _GROUP_WORDS if name in attributes)
    return ChakraNode(
        whole_number(field("id", 0), "id"), _plain(str(field("name", "")))[:60], kind,
        tuple(whole_number(id, "a dependency") for name in ("data_deps", "ctrl_deps")
              for id in list_of(field(name, []), name)),
        shapes if isinstance(shapes, str) else json.dumps(shapes), str(types),
        None if kind != _COLLECTIVE or collective is None else whole_number(collective, "comm_type", _COLLECTIVES),
        whole_number(attributes.get("comm_size", 0), "comm_size") if kind == _COLLECTIVE else 0,
        RankGroup(group, size, next((ranks for ranks in lists if len(ranks) == size), ()), f"{group} {words}")
        if kind == _COLLECTIVE else RankGroup(None, None))


def _plain(text: str) -> str:
    """Replace characters that would not print on one line."""
    return re.sub(r"[^ -~]", "?", text)


def _messages(content: bytes) -> Iterator[object]:
    """Read the protobuf form: the metadata and the nodes, each preceded by its length."""
    from google.protobuf.json_format import MessageToDict
    from google.protobuf.message import DecodeError

    position, is_metadata = 0, True
    while position < len(content):
        length = shift = 0
        while True:
            if position == len(content) or shift > 28:
                raise ValueError(f"no length of a message at byte {position}")
            byte, position = content[position], position + 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if position + length > len(content):
            raise ValueError(f"a message of {length:,} bytes at byte {position} is cut off")
        message = _node_class()()
        if not is_metadata:
            try:
                message.ParseFromString(content[position:position + length])
            except DecodeError:
                raise ValueError(f"no node at byte {position}") from None
            yield {"id": 0, **MessageToDict(message, preserving_proto_field_name=True)}
        position, is_metadata = position + length, False


@cache
def _node_class() -> type:
    """Make the message class of a node: the schema's fields that the reader uses, with their numbers."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    # proto2 tells a missing number from 0, which is an all-reduce.
    file = descriptor_pb2.FileDescriptorProto(name="t3sim_chakra.proto", package="t3sim_chakra", syntax="proto2")
    kinds = {"uint64": 4, "int64": 3, "int32": 5, "string": 9, "uint32": 13, "message": 11}

    def message(name: str, fields: list[tuple[str, int, str, bool, str | None]]) -> None:
        message_type = file.message_type.add(name=name)
        for field, number, kind, repeated, element_type in fields:
            message_type.field.add(name=field, number=number, type=kinds[kind], label=3 if repeated else 1,
                                   type_name=f".t3sim_chakra.{element_type}" if element_type else None)
    message("Attribute", [("name", 1, "string", False, None), ("int32_val", 7, "int32", False, None),
                          ("int64_val", 9, "int64", False, None), ("uint32_val", 11, "uint32", False, None),
                          ("uint64_val", 13, "uint64", False, None), ("string_val", 29, "string", False, None),
                          *((f"{kind}_list", number, "message", False, "Numbers") for kind, number in (
                              ("int32", 8), ("int64", 10), ("uint32", 12), ("uint64", 14)))])
    message("Numbers", [("values", 1, "uint64", True, None)])
    message("Inputs", [(name, number, "string", False, None) for number, name in enumerate(
        ("values", "shapes", "types"), 1)])
    message("Node", [("id", 1, "uint64", False, None), ("name", 2, "string", False, None),
                     ("type", 3, "uint32", False, None), ("ctrl_deps", 4, "uint64", True, None),
                     ("data_deps", 5, "uint64", True, None), ("inputs", 8, "message", False, "Inputs"),
                     ("attr", 10, "message", True, "Attribute")])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t3sim_chakra.Node"))
