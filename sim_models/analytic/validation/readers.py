"""Readers of measured rows: one per kind of file, each turns a row into what it asks of a machine.

A file is known by its columns, so that any file with the columns of one of ours can be read.
"""

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path

from t3sim.analytic.end_to_end.layer import FLASH
from t3sim.analytic.end_to_end.mapping import FULL, RECOMPUTE, SELECTIVE, Mapping
from t3sim.analytic.end_to_end.training import TrainingJob
from t3sim.analytic.gemm import width_of
from t3sim.analytic.validation.requests import (
    BadRows,
    Beside,
    Collective,
    Crowded,
    ExpertsExchange,
    GemmRequest,
    Measured,
    MemoryAccess,
    Norm,
    OverlapRequest,
    Prompt,
    Ratio,
    Read,
    Request,
    Steady,
    Training,
    Unread,
)
from t3sim.base.bounded import TooLarge, read_bounded
from t3sim.base.errors import shown
from t3sim.base.numerals import decimal, whole
from t3sim.workload.transformer import PRESETS, TODAY, Transformer

MB = 1 << 20

#: Files of the package that `t3 validate` reads, by package.
FILES = {"t3sim.analytic.measured": ("collectives_over_size", "gemm_throughput", "fused_operators", "contention",
                                     "allreduce_rmsnorm_fusion_h100", "prefill_latency_with_without_allreduce_h100",
                                     "moe_dispatch_combine", "remote_access", "network_vidur", "gemms_hopper",
                                     "beside_hopper", "steady_hopper"),
         "t3sim.event.tiles.measured": ("gemms", "all_reduces"), "t3sim.event.flow.measured": ("sdma_copies",),
         "t3sim.analytic.end_to_end.measured": ("single_node", "megatron", "trainings_of_today")}

_LARGEST = 1 << 50
_ROUNDED = 0.1  #: a rate and a time of one row may differ by their digits


class Row:
    """One row of a file, whose fields are read with checks."""

    def __init__(self, where: str, fields: dict[str, str]) -> None:
        self.where, self.fields = where, fields

    def text(self, column: str) -> str:
        return (self.fields.get(column) or "").strip()

    def number(self, column: str, times: float = 1.0) -> float | None:
        """Return a positive number `times` over; None for an empty field or a question mark."""
        text = self.text(column)
        if text in ("", "?", "not said"):
            return None
        try:
            value = decimal(text)
        except ValueError:
            value = -1.0
        if not 0 < value <= _LARGEST:
            raise BadRows(f"{self.where}: {column} = {shown(text)} is not a number above 0")
        return times * value

    def count(self, column: str) -> int:
        """Return a whole number, which the row needs."""
        text = self.text(column)
        try:
            value = whole(text)
        except ValueError:
            value = 0
        if not 1 <= value <= _LARGEST:
            raise BadRows(f"{self.where}: {column} = {shown(text)} is not a whole number from 1 on")
        return value

    @property
    def source(self) -> str:
        return self.text("source")

    @property
    def gpu(self) -> str:
        return self.text("gpu")


def size_name(size: float) -> str:
    """Write a size as people read it."""
    for unit, bits in (("GB", 30), ("MB", 20), ("KB", 10)):
        if size >= 1 << bits:
            return f"{size / (1 << bits):.4g} {unit}"
    return f"{size:.0f} B"


def band(size: float) -> str:
    """Return the quantity that a collective of this size counts in."""
    return "collective from 1 MB" if size >= MB else "collective below 1 MB"


def _timed(source: str, gpu: str, quantity: str, scenario: str, ask: Request, ns: float | None) -> Measured | Unread:
    """Return a row with its time, or one that has none."""
    if ns is None:
        return Unread(source, gpu, scenario, "the row has no time")
    return Measured(source, gpu, quantity, scenario, ask, ns)


#: Collectives as libraries write them: AllReduce, all-reduce, allreduce.
_KINDS = {one.replace("_", ""): one for one in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                                "send_recv", "broadcast", "reduce")}


def _collective(row: Row) -> Iterator[Read]:
    size, gpus = row.number("size_bytes"), row.count("gpus")
    nodes = row.count("nodes") if row.text("nodes") else 1
    if size is None:
        raise BadRows(f"{row.where}: size_bytes is empty: a number is needed")
    library, algorithm = row.text("library"), row.text("algorithm")
    collective_name = row.text("collective")
    kind = _KINDS.get(re.sub(r"[-_ ]", "", collective_name.lower()), collective_name)
    scenario = (f"{kind} on {gpus} GPUs{f' of {nodes} nodes' if nodes > 1 else ''}, {library}"
                f"{f', {algorithm}' if algorithm else ''}, {size_name(size)}")
    yield _timed(row.source, row.gpu, band(size), scenario,
                 Collective(kind, gpus, nodes, size, library, algorithm), row.number("time_us", 1e3))


def _older_all_reduce(row: Row) -> Iterator[Read]:
    size, gpus, ns = row.count("size_bytes"), row.count("gpus"), row.number("out_of_place_time_ns")
    scenario = f"all_reduce on {gpus} GPUs, NCCL (vTrain), {size_name(size)}"
    yield _timed("vTrain", row.gpu, band(size), scenario, Collective("all_reduce", gpus, 1, size, "NCCL"), ns)


def _vidur(row: Row) -> Iterator[Read]:
    size, gpus, within = row.count("size_bytes"), row.count("gpus"), row.count("gpus_per_node")
    kind, ns = row.text("collective"), row.number("median_time_ns")
    nodes, gpu = max(1, gpus // within), row.text("box")
    scenario = f"{kind} on {gpus} GPUs{f' of {nodes} nodes' if nodes > 1 else ''}, NCCL (Vidur), {size_name(size)}"
    if nodes > 1 and "a100" in gpu and ns is not None:
        yield Unread("Vidur", gpu, scenario, "the source does not name the cards between its nodes")
        return
    quantity = "send and receive" if kind == "send_recv" else band(size)
    yield _timed("Vidur", gpu, quantity, scenario, Collective(kind, gpus, nodes, size, "NCCL"), ns)


def _gemm(row: Row) -> Iterator[Read]:
    m, n, k = (row.count(name) for name in "mnk")
    dtype, ns, rate = row.text("dtype") or "fp16", row.number("time_us_derived", 1e3), row.number("tflops")
    by_rate = None if rate is None else 1e3 * (2e-6 * m * n * k / rate)
    if ns is None:
        ns = by_rate
    elif by_rate is not None and abs(ns / by_rate - 1) > _ROUNDED:
        raise BadRows(f"{row.where}: time_us_derived = {shown(row.text('time_us_derived'))} is not what tflops = "
                      f"{shown(row.text('tflops'))} gives, {by_rate / 1e3:.1f}")
    yield _timed(row.source, row.gpu, "GEMM", f"{m} x {n} x {k}, {dtype}", GemmRequest(m, n, k, dtype), ns)


def _older_gemm(row: Row) -> Iterator[Read]:
    m, n, k = (row.count(name) for name in "mnk")
    ns, called = row.number("time_ns"), f"{m} x {n} x {k}"
    scenario = called if ns is None else f"{called}, fp16, waited for"
    yield _timed("LLMCompass", row.gpu, "GEMM", scenario, GemmRequest(m, n, k, "fp16", waited=True), ns)


def _operator(row: Row) -> Iterator[Read]:
    m, n, k = (row.count(name) for name in "mnk")
    name, gpus, k_is = row.text("operator"), row.count("gpus"), row.text("k_is") or "as printed"
    if not (means := re.match(r"(per (?:rank|gpu))|(global)|as printed|not said|\?", k_is.lower())):
        raise BadRows(f"{row.where}: k_is = {shown(k_is)} is unknown: allowed are per rank, global, as printed")
    of_gpu = k // gpus if means[2] and name in ("gemm+rs", "gemm+ar") else k  # no other operator shares K
    if of_gpu != k and k % gpus:
        raise BadRows(f"{row.where}: k = {k} ({k_is}) is no multiple of {gpus} GPUs")
    ask = OverlapRequest(name, gpus, GemmRequest(m, n, of_gpu, row.text("dtype") or "bf16"), row.text("fused"))
    parts = {"baseline": row.text("baseline"), "fused": row.text("fused"), "gemm": "GEMM alone",
             "collective": "collective alone"}
    columns = {"baseline": "baseline_ms", "fused": "fused_ms", "gemm": "gemm_alone_ms",
               "collective": "collective_alone_ms"}
    title = f"{name} {m} x {n} x {k} ({k_is}) on {gpus} GPUs"
    times = {part: row.number(column) for part, column in columns.items()}
    for part, ms in times.items():
        if ms is not None:
            yield Measured(row.source, row.gpu, "fused operator" if part == "fused" else "parts of fused operators",
                           f"{title}, {parts[part]}", replace(ask, part=part, way=parts[part]), 1e6 * ms)
    ratio = row.number("speedup")
    if times["baseline"] is not None and times["fused"] is not None:
        ratio = times["baseline"] / times["fused"]
    if ratio is not None:
        yield Ratio(row.source, row.gpu, "fused operator", f"{title}, {ask.way} against {parts['baseline']}", "sign",
                    replace(ask, part="baseline", way=parts["baseline"]), ask, ratio)
    elif all(ms is None for ms in times.values()):
        yield Unread(row.source, row.gpu, title, "the row has no time")


def _beside(row: Row) -> Iterator[Read]:
    gpus = row.count("gpus") if row.text("gpus") else 8
    compute, collective, by = row.text("compute"), row.text("collective"), row.text("by")
    ask = Beside(compute, collective, by, row.text("bytes_or_rate"), gpus, "together")
    scenario = f"{compute} beside {collective} by {by} ({ask.amount})"
    together_ms, alone_ms = row.number("together_ms"), row.number("compute_alone_ms")
    in_turn = re.search(r"sequential (\d{1,9}(?:\.\d{1,9})?) ms", row.text("remark"))
    if together_ms is not None:
        yield Measured(row.source, row.gpu, "beside a collective", scenario, ask, 1e6 * together_ms)
    if in_turn and together_ms is not None:
        second = replace(ask, way="in turn")
        yield Measured(row.source, row.gpu, "beside a collective", f"{scenario}, in turn", second,
                       1e6 * float(in_turn[1]))
        yield Ratio(row.source, row.gpu, "beside a collective", f"{scenario} against in turn", "sign", second, ask,
                    float(in_turn[1]) / together_ms)
    if together_ms is not None and alone_ms is not None:
        yield Ratio(row.source, row.gpu, "slowdown beside a collective", scenario, "slowdown", ask,
                    replace(ask, way="alone"), 100 * (together_ms / alone_ms - 1))
    if together_ms is None:
        yield Unread(row.source, row.gpu, scenario, "the row has no time")


#: What others beside a kernel do, as `scripts/measure_kernels.py` and `measure_contention.cu` call it.
_BY = ("held units", "copying units", "copy engines", "units that copy to another GPU")


def _crowded(row: Row) -> Iterator[Read]:
    compute, neighbour = row.text("compute"), row.text("by")
    units, rate = row.count("units") if row.text("units") else 0, row.number("gb_per_s") or 0.0
    alone_us, beside_us = row.number("alone_us"), row.number("beside_us")
    if neighbour not in _BY:
        raise BadRows(f"{row.where}: by = {shown(neighbour)} is unknown: allowed are {', '.join(_BY)}")
    scenario = f"{compute} beside {f'{units} ' if units else ''}{neighbour}{f' at {rate:.0f} GB/s' if rate else ''}"
    if alone_us is None or beside_us is None:
        yield Unread(row.source, row.gpu, scenario, "the row has no time")
        return
    memory_rate = rate * (2 if neighbour == "copying units" else 1)  # within the GPU each byte is read and written
    yield Ratio(row.source, row.gpu, f"beside {neighbour}", scenario, "slowdown", Crowded(compute, units, memory_rate),
                Crowded(compute, 0, 0.0), 100 * (beside_us / alone_us - 1))


def _steady(row: Row) -> Iterator[Read]:
    compute, ns = row.text("compute"), row.number("steady_us", 1e3)
    scenario = compute if ns is None else f"{compute}, for a second"
    yield _timed(row.source, row.gpu, "GEMM over and over", scenario, Steady(compute), ns)


_NORM_PARTS = {"full_rms_norm_us": "norm", "partial_rms_norm_us": "partial norm", "nccl_all_reduce_us": "nccl",
               "multimem_all_reduce_us": "multimem", "fused_all_reduce_rms_norm_us": "fused",
               "simple_fusion_us": "simple fusion", "multimem_reduce_scatter_us": "reduce-scatter",
               "multimem_all_gather_us": "all-gather"}


def _norm(row: Row) -> Iterator[Read]:
    gpus, tokens, hidden = row.count("gpus"), row.count("tokens"), row.count("hidden")
    title = f"{tokens} x {hidden} on {gpus} GPUs"
    times = {part: row.number(column) for column, part in _NORM_PARTS.items()}
    for part, us in times.items():
        if us is not None:
            quantity = {"fused": "fused operator", "simple fusion": "fused operator"}.get(part)
            if part in ("nccl", "multimem", "reduce-scatter", "all-gather"):
                quantity = band(2 * tokens * hidden)
            yield Measured(row.source, row.gpu, quantity or "RMSNorm", f"all-reduce and RMSNorm {title}, {part}",
                           Norm(gpus, tokens, hidden, part), 1e3 * us)
    for part in ("fused", "simple fusion"):
        if None not in (times[part], times["multimem"], times["norm"]):
            yield Ratio(row.source, row.gpu, "fused operator", f"all-reduce and RMSNorm {title}, {part} against both",
                        "sign", Norm(gpus, tokens, hidden, "in turn"), Norm(gpus, tokens, hidden, part),
                        (times["multimem"] + times["norm"]) / times[part])


def _prompt(row: Row) -> Iterator[Read]:
    model, gpus, tokens = row.text("model"), row.count("tensor_parallel"), row.count("prompt_tokens")
    title = f"{model}, {tokens} tokens on {gpus} GPUs"
    ways = {"baseline_multimem_ms": "baseline", "without_all_reduce_ms": "without", "tokenweave_ms": "tokenweave"}
    times = {}
    for column, way in ways.items():
        ms = row.number(column)
        if ms is not None:
            times[way] = ms
            yield Measured(row.source, row.gpu, "prompt", f"{title}, {way}", Prompt(model, gpus, tokens, way), 1e6 * ms)
    if {"baseline", "without"} <= times.keys():
        yield Ratio(row.source, row.gpu, "share of the all-reduce", title, "share",
                    Prompt(model, gpus, tokens, "baseline"), Prompt(model, gpus, tokens, "without"),
                    100 * (1 - times["without"] / times["baseline"]))
    if {"baseline", "tokenweave"} <= times.keys():
        yield Ratio(row.source, row.gpu, "prompt", f"{title}, TokenWeave against baseline", "sign",
                    Prompt(model, gpus, tokens, "baseline"), Prompt(model, gpus, tokens, "tokenweave"),
                    times["baseline"] / times["tokenweave"])


def _exchange(row: Row) -> Iterator[Read]:
    gpus, nodes, tokens, hidden, top_k, experts = (row.count(name) for name in (
        "gpus", "nodes", "tokens_per_gpu", "hidden", "top_k", "experts"))
    if top_k > experts:
        raise BadRows(f"{row.where}: top_k = {top_k} is more than its experts = {experts}")
    operation, library, dtype = row.text("operation"), row.text("library"), row.text("dtype")
    us, rate = row.number("latency_us"), row.number("bandwidth_gb_per_s")
    scenario = f"{operation} of {tokens} tokens to {top_k} experts on {gpus} GPUs of {nodes} nodes, {library}, {dtype}"
    if us is None:
        reason = "the row has no time" if rate is None else "a rate whose bytes the source counts by where tokens went"
        yield Unread(row.source, row.gpu, scenario, reason)
        return
    yield Measured(row.source, row.gpu, "dispatch and combine", scenario,
                   ExpertsExchange(operation, library, gpus, nodes, tokens, hidden, top_k, experts, dtype), 1e3 * us)


_BUFFER = re.compile(r"buffer (\d{1,9}(?:\.\d{1,9})?) MiB|copy (\d{1,9}(?:\.\d{1,9})?) KB")


def _access(row: Row) -> Iterator[Read]:
    operation, location, rate = row.text("operation"), row.text("where"), row.number("gib_per_s_mean")
    scenario = f"{operation}, {location}"
    if rate is None:
        yield Unread(row.source, row.gpu, scenario, "the row has no rate")
        return
    match = _BUFFER.search(scenario)
    size = 1 << 30 if match is None else float(match[1] or 0) * MB + float(match[2] or 0) * 1024
    unit = 1e9 if "GB/s in the source" in row.source else float(1 << 30)
    yield Measured(row.source, row.gpu, "remote access", scenario, MemoryAccess(operation, location, size),
                   1e9 * size / (rate * unit))


def _copies(row: Row) -> Iterator[Read]:
    size, rate = row.count("bytes"), row.number("gb_per_s")
    if rate is not None:
        yield Measured("ROCm/mori, SDMA skill (MIT)", "MI355X", "remote access", f"SDMA copy of {size_name(size)}",
                       MemoryAccess("SDMA copy", "one link", size), size / rate)


def _training(row: Row) -> Iterator[Read]:
    numbers = {name: row.count(name) for name in ("hidden", "layers", "heads", "sequence", "global_batch",
                                                  "micro_batch", "tp", "pp", "dp")}
    scenario = "GPT, " + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in numbers.items()
                                   if name not in ("tp", "pp", "dp"))
    hidden, layers, heads, sequence, batch, micro, tp, pp, dp = numbers.values()
    ask = Training(TrainingJob(Transformer("measured", hidden, layers, heads, 4 * hidden, 51200), sequence, batch),
                   Mapping(tp, pp, dp, micro, recompute=FULL))
    yield _timed("vTrain", "A100", "training", f"{scenario}, tp {tp} pp {pp} dp {dp}", ask,
                 row.number("iteration_ms", 1e6))


def _megatron(row: Row) -> Iterator[Read]:
    model = PRESETS.get(row.text("model"))
    if model is None:
        raise BadRows(f"{row.where}: model = {shown(row.text('model'))} is unknown")
    batch, micro, tp, pp, interleave = map(row.count, ("global_batch", "micro", "tp", "pp", "interleave"))
    for column, sp, recompute in (("full_s", 0, FULL), ("selective_s", 1, SELECTIVE)):
        mapping = Mapping(tp, pp, micro=micro, interleave=interleave, sp=sp, recompute=recompute)
        yield _timed("Megatron-LM, arXiv 2205.05198", "A100", "training",
                     f"{model.name}, {row.count('gpus')} GPUs, {RECOMPUTE[recompute]} recomputation",
                     Training(TrainingJob(model, 2048, batch), mapping), row.number(column, 1e9))


#: Models as sources write them, where today's have the same shape.
_SAME_SHAPE = {"llama-3-8b": "llama-3.1-8b", "llama-3-70b": "llama-3.3-70b"}


def _training_of_today(row: Row) -> Iterator[Read]:
    name, dtype, gpus = row.text("model"), row.text("dtype"), row.count("gpus")
    batch, micro, sequence, tp, pp, cp, ep = map(row.count, (
        "global_batch", "micro_batch", "sequence", "tp", "pp", "cp", "ep"))
    interleave = row.count("vp") if row.text("vp") else 1
    scenario = f"{name}, {gpus} GPUs, {dtype}, tp {tp} pp {pp} cp {cp} ep {ep}"
    model, width = TODAY.get(_SAME_SHAPE.get(name, name)), width_of(dtype)
    rate = row.number("tokens_per_s_per_gpu")
    if model is None or width is None or cp > 1 or rate is None:
        yield Unread(row.source, row.gpu, scenario,
                     "the row has no rate" if rate is None else "context parallelism has no model" if cp > 1 else
                     "the model's shape, or the operands' format, is not known")
        return
    if gpus % (tp * pp):
        raise BadRows(f"{row.where}: gpus = {gpus} is not a multiple of tp = {tp} x pp = {pp}")
    mapping = Mapping(tp, pp, gpus // (tp * pp), micro, interleave, int(tp > 1),
                      3 if row.text("fsdp") == "1" else 1, ep)
    yield Measured(row.source, row.gpu, "training", scenario,
                   Training(TrainingJob(model, sequence, batch, FLASH, width), mapping),
                   1e9 * batch * sequence / (rate * gpus))


#: Columns of vTrain's own file, and what ours are called.
_VTRAIN = {"# GPUs": "gpus", "global batch": "global_batch", "micro batch": "micro_batch", "hidden size": "hidden",
           "attention heads": "heads", "# layers": "layers", "sequence length": "sequence", "tensor parallelism": "tp",
           "data parallelism": "dp", "pipeline parallelism": "pp", "iteration time (ms)": "iteration_ms"}


@dataclass(frozen=True)
class Reader:
    """Reader of the rows of files that have these columns."""

    columns: frozenset[str]
    read: Callable[[Row], Iterator[Read]]


def _reader(columns: str, read: Callable[[Row], Iterator[Read]]) -> Reader:
    return Reader(frozenset(columns.split()), read)


READERS = (
    _reader("gpu gpus collective library size_bytes time_us", _collective),
    _reader("gpu gpus size_bytes out_of_place_time_ns", _older_all_reduce),
    _reader("box collective gpus gpus_per_node size_bytes median_time_ns", _vidur),
    _reader("gpu dtype m n k tflops", _gemm),
    _reader("gpu m n k time_ns", _older_gemm),
    _reader("gpu gpus operator m n k baseline baseline_ms fused fused_ms", _operator),
    _reader("gpu compute collective by bytes_or_rate together_ms", _beside),
    _reader("gpu compute by units gb_per_s alone_us beside_us", _crowded),
    _reader("gpu compute first_us steady_us", _steady),
    _reader(f"gpu gpus tokens hidden {' '.join(_NORM_PARTS)}", _norm),
    _reader("gpu tensor_parallel model prompt_tokens baseline_multimem_ms", _prompt),
    _reader("gpu gpus nodes operation library tokens_per_gpu hidden top_k experts dtype latency_us", _exchange),
    _reader("gpu operation where gib_per_s_mean", _access),
    _reader("bytes gb_per_s", _copies),
    _reader("hidden layers heads sequence global_batch micro_batch tp pp dp iteration_ms", _training),
    _reader("model gpus global_batch micro tp pp interleave full_s selective_s", _megatron),
    _reader("gpu gpus model dtype global_batch micro_batch sequence fsdp tp pp cp ep tokens_per_s_per_gpu",
            _training_of_today),
)


def read_text(text: str, name: str) -> list[Read]:
    """Read the rows of a CSV file of one of the known kinds. Raises `BadRows`."""
    lines = ["" if re.match(r"#(?! GPUs,)", line) else line for line in text.splitlines()]
    table = csv.reader(lines, strict=True)
    try:
        header = next((fields for fields in table if fields), None)
        if header is None:
            raise BadRows(f"{name}: the file is empty: a line of column names is needed")
        columns = [_VTRAIN.get(column.strip(), column.strip()) for column in header]
        if twice := [column for column in columns if column and columns.count(column) > 1]:
            raise BadRows(f"{name}: column {shown(twice[0])} appears twice")
        reader = next((one for one in READERS if one.columns <= {*columns}), None)
        if reader is None:
            nearest = max(READERS, key=lambda one: len(one.columns & {*columns}))
            raise BadRows(f"{name}: columns {shown(','.join(columns))} belong to no known kind of rows: the closest "
                          f"kind also needs {', '.join(sorted(nearest.columns - {*columns}))}")
        rows: list[Read] = []
        faulty_rows: list[BadRows] = []
        for fields in table:
            if not fields:
                continue
            position = f"{name}, line {table.line_num}"
            try:
                if len(fields) != len(columns):
                    raise BadRows(f"{position}: {len(fields)} fields, but {len(columns)} columns")
                rows += [replace(one, file=name) for one in reader.read(Row(position, dict(zip(columns, fields))))]
            except BadRows as error:
                faulty_rows.append(error)
        if not rows:
            raise faulty_rows[0] if faulty_rows else BadRows(f"{name}: no rows below its line of column names")
        return rows + [Unread(name, "", name, str(error), name) for error in faulty_rows]
    except csv.Error as error:
        raise BadRows(f"{name}, line {table.line_num}: {error}") from None


def text_of(path: str, option: str) -> str:
    """Return a user's file as text. Raises `BadRows`."""
    try:
        return read_bounded(Path(path)).decode("utf-8-sig")
    except OSError as error:
        raise BadRows(f"{option} {shown(path)} cannot be read: {error.strerror}") from None
    except (TooLarge, UnicodeDecodeError) as error:
        raise BadRows(f"{option} {shown(path)} is not a text file: {error}") from None


@cache
def own_rows() -> tuple[Read, ...]:
    """Return all rows that come with the package."""
    rows: list[Read] = []
    for package, names in FILES.items():
        for name in names:
            rows += read_text(resources.files(package).joinpath(f"{name}.csv").read_text("utf-8"), f"{name}.csv")
    return tuple(rows)
