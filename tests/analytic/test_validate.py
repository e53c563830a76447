"""`t3 validate`: rows of every kind are read, what is wrong with a file is one line, nothing crashes."""

import csv
import io
import json
import re
from importlib import resources
from pathlib import Path

import matplotlib
import pytest

from t3sim.analytic.validation.comparison import compare
from t3sim.analytic.validation.log import read_log
from t3sim.analytic.validation.machines import constants
from t3sim.analytic.validation.page import TARGETS, write_page
from t3sim.analytic.validation.plots import draw_curves
from t3sim.analytic.validation.readers import FILES, READERS, own_rows, read_text
from t3sim.analytic.validation.requests import BadRows, Collective, Measured, Ratio, Unread
from t3sim.cli import main
from tests.support.damage import replaced

ROOT = Path(__file__).resolve().parents[2]

HEADER = "gpu,gpus,nodes,collective,library,algorithm,dtype,size_bytes,time_us,busbw_gb_per_s,time_is,source\n"
ROW = "A100-SXM4-80GB,8,1,all_reduce,NCCL,,,{size},{time},,,somebody\n"

LOG = """# nccl-tests version 2.13
# Using devices
#  Rank  0 Group  0 Pid  101 on  node1 device  0 [0x07] NVIDIA A100-SXM4-80GB
#  Rank  1 Group  0 Pid  102 on  node1 device  1 [0x0b] NVIDIA A100-SXM4-80GB
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    40.00   26.21   26.21      0    39.10   26.82   26.82      0
    67108864      16777216     float     sum      -1    400.0   167.8   167.8      0    399.0   168.2   168.2    N/A
# Out of bounds values : 0 OK
"""


@pytest.fixture(scope="module")
def rows():
    return own_rows()


def test_every_row_of_the_package_is_read_and_none_twice(rows):
    times = [one for one in rows if isinstance(one, Measured)]
    assert len(times) > 1200 and all(one.ns > 0 for one in times)
    assert len({one.quantity for one in rows if not isinstance(one, Unread)}) >= 10
    assert {one.file for one in rows} == {f"{name}.csv" for name in (
        "collectives_over_size", "gemm_throughput", "fused_operators", "contention", "allreduce_rmsnorm_fusion_h100",
        "prefill_latency_with_without_allreduce_h100", "moe_dispatch_combine", "remote_access", "network_vidur",
        "gemms_hopper", "beside_hopper", "steady_hopper", "gemms", "all_reduces", "sdma_copies", "single_node",
        "megatron", "trainings_of_today")}


def test_a_row_and_its_signs():
    text = ("gpu,gpus,operator,m,n,k,k_is,dtype,baseline,baseline_ms,fused,fused_ms,speedup,gemm_alone_ms,"
            "collective_alone_ms,source\nH800,8,gemm+ar,2048,8192,1024,per rank,fp16,in turn,0.45,fused,0.30,,,,me\n")
    *times, sign = read_text(text, "x.csv")
    assert [one.ns for one in times] == [450e3, 300e3] and isinstance(sign, Ratio)
    assert sign.kind == "sign" and sign.measured == pytest.approx(1.5)


@pytest.mark.parametrize(("text", "words"), [
    ("", "is empty"), (HEADER, "no rows below its line of column names"),
    ("a,b\n1,2\n", "to no known kind"),
    (HEADER + ROW.format(size="many", time=3), "line 2: size_bytes = 'many' is not a number above 0"),
    (HEADER + ROW.format(size=1024, time=-3), "line 2: time_us = '-3' is not a number above 0"),
    (HEADER + ROW.format(size="nan", time=3), "is not a number"),
    (HEADER + "\n# a remark\n" + ROW.format(size=1024, time="1e999"), "line 4: time_us"),
    (HEADER + "A100,8\n", "line 2: 2 fields, but 12 columns"),
    (HEADER + ROW.format(size=1024, time=3).replace(",8,1", ",0,1"), "gpus = '0' is not a whole number from 1 on"),
    (HEADER + 'A100,"8\n', "line 2"),
    ("gpu,dtype,m,n,k,tflops,tflops\nA100,fp16,8,8,8,1,2\n", "column 'tflops' appears twice"),
    ("gpu,dtype,m,n,k,tflops,time_us_derived\nA100,fp16,1024,1024,1024,2,4\n",
     "line 2: time_us_derived = '4' is not what tflops = '2' gives, 1073.7"),
])
def test_bad_rows_are_one_line(text, words, tmp_path, error_of):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    assert words in error_of("validate", "--rows", str(path))


@pytest.mark.parametrize("arguments", [["--rows", "no-such.csv"], ["no-such-machine"], ["--log", "/"],
                                       ["--rows", "README.md", "--plot", "x.pdf"]])
def test_bad_arguments_are_one_line(arguments, error_of):
    error_of("validate", *arguments)


def test_a_row_that_cannot_be_read_is_named_and_the_others_are_answered(tmp_path, capsys, json_of):
    path, good = tmp_path / "rows.csv", ROW.format(size=1 << 24, time=269)
    path.write_text(HEADER + good + good.replace(",8,1", ",8?,1") + good.replace("269", "x") + "A100,8\n" + good)
    told = json_of("validate", "--rows", str(path))
    assert len(told["rows"]) == 2 and [(one["reason"], one["rows"]) for one in told["not_expressible"]] == [
        (f"{path}, line 3: gpus = '8?' is not a whole number from 1 on", 1),
        (f"{path}, line 4: time_us = 'x' is not a number above 0", 1), (f"{path}, line 5: 2 fields, but 12 columns", 1)]
    assert main(["validate", "a100-sxm", "--rows", str(path)]) == 0
    assert "line 3: gpus = '8?'" in capsys.readouterr().out


def test_rows_of_no_gpu_of_the_machine_are_refused(tmp_path, error_of):
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + ROW.format(size=1 << 24, time=269))
    line = error_of("validate", "h100-sxm", "--rows", str(path))
    assert "machine 'h100-sxm' has no row in what is given: rows are of A100-SXM4-80GB" in line


FLUX = ("gpu,gpus,operator,m,n,k,k_is,dtype,baseline,baseline_ms,fused,fused_ms,speedup,gemm_alone_ms,"
        "collective_alone_ms,source\n")


@pytest.mark.parametrize(("operator", "k", "k_is", "own"), [
    ("gemm+rs", 3584, "per rank", 3584), ("gemm+rs", 28672, "global", 3584), ("gemm+ar", 28672, "Global", 3584),
    ("gemm+rs", 3584, "per GPU", 3584), ("gemm+rs", 3584, "", 3584), ("gemm+rs", 3584, "?", 3584),
    ("ag+gemm", 8192, "global", 8192), ("a2a+gemm", 8192, "global", 8192), ("ag+gemm", 64, "per rank (m whole)", 64)])
def test_of_k_that_is_shared_each_gpu_has_its_part(operator, k, k_is, own):
    one, *_ = read_text(f"{FLUX}H100,8,{operator},1024,8192,{k},{k_is},fp16,NCCL,0.18,Flux,0.18,,,,me\n", "x.csv")
    assert one.ask.gemm.k == own and f"x {k} (" in one.scenario


@pytest.mark.parametrize(("k", "k_is", "words"), [
    (28671, "global", r"line 2: k = 28671 \(global\) is no multiple of 8 GPUs"),
    (64, "shared", "line 2: k_is = 'shared' is unknown: allowed are per rank, global, as printed")])
def test_a_k_of_no_known_meaning_is_refused(k, k_is, words):
    with pytest.raises(BadRows, match=words):
        read_text(f"{FLUX}H100,8,gemm+rs,1024,8192,{k},{k_is},fp16,NCCL,0.18,Flux,0.18,,,,me\n", "x.csv")


def test_on_hopper_flux_pulls_its_reduce_scatter_and_is_slower_than_in_turn():
    """Rows of bytedance/flux issue 90, none of which gave a constant (N = 8192, K = 28672 on eight H100)."""
    measured = {1024: (0.18, 0.18325), 4096: (0.54225, 0.632875), 16384: (2.01063, 2.4585)}
    rows = "".join(f"H100-SXM,8,gemm+rs,{m},8192,28672,global,fp16,NCCL + cuBLAS,{turn},Flux,{flux},,,,#90\n"
                   for m, (turn, flux) in measured.items())
    found = compare(read_text(FLUX + rows, "x.csv"))
    assert len(found.rows) == 6 and not any(one.fitted for one in found.rows)
    assert all(abs(one.error) < 0.2 for one in found.rows)
    assert all(one.right and one.ours < 1 for one in found.ratios) and len(found.ratios) == 3


def test_rows_that_no_machine_expresses_are_counted_with_the_reason():
    row = ROW.format(size=1 << 20, time=50)
    text = HEADER + row.replace("A100", "TPU") + row.replace("all_reduce", "scan") + row.replace(",50,", ",,") + row
    found = compare(read_text(text, "x.csv"))
    assert len(found.rows) == 1
    assert sorted(len(some) for some in found.left_out.values()) == [1, 1, 1]
    assert any("TPU" in reason for reason in found.left_out)


@pytest.mark.parametrize(("library", "algorithm", "nodes", "words"), [
    ("oneCCL", "", 1, "library 'oneCCL' has no model: NCCL, RCCL, MSCCL"), ("Gloo", "ring", 1, "library 'Gloo'"),
    ("NCCL", "PAT", 1, "'pat' of algorithm 'PAT' has no model: ring, tree"), ("NCCL", "ring, 3 hops", 1, "'3' of"),
    ("torch symmetric memory", "two-shot, int8", 1, "'int8' of algorithm"),
    ("MSCCL++", "kernel 6", 2, "direct kernels over several nodes have no model"),
    ("torch multimem", "", 2, "multicast kernels over several nodes have no model")])
def test_a_library_or_an_algorithm_without_a_model_is_said(library, algorithm, nodes, words):
    text = HEADER + f'H100-SXM,{8 * nodes},{nodes},all_reduce,{library},"{algorithm}",,1048576,50,,,somebody\n'
    found = compare(read_text(text, "x.csv"))
    (reason, scenarios), = found.left_out.items()
    assert not found.rows and words in reason and len(scenarios) == 1


@pytest.mark.parametrize(("library", "algorithm"), [
    ("", ""), ("NCCL 2.27.7", ""), ("torch/NCCL", "cuMem off, calls queued"), ("RCCL", "RING LL128, tuned"),
    ("NCCL", "as printed: NVLS (whatever the table says)"), ("SGLang", "custom (baseline)"), ("mine", "two-shot")])
def test_words_that_have_a_meaning_are_answered(library, algorithm):
    text = HEADER + f'H100-SXM,8,1,all_reduce,{library},"{algorithm}",,1048576,50,,,somebody\n'
    assert len(compare(read_text(text, "x.csv")).rows) == 1


def _all_reduced_ns(library: str, algorithm: str, size: int = 1 << 20) -> float:
    text = HEADER + f'H100-SXM,8,1,all_reduce,{library},"{algorithm}",,{size},50,,,somebody\n'
    one, = compare(read_text(text, "x.csv")).rows
    return one.ours_ns


def test_a_named_protocol_or_number_of_shots_is_the_one_that_is_answered():
    protocols = [_all_reduced_ns("NCCL", f"RING {name}, CUDA graph", 1 << 24) for name in ("LL", "LL128", "SIMPLE")]
    assert len({*protocols}) == 3 and _all_reduced_ns("NCCL", "RING, CUDA graph", 1 << 24) == min(protocols)
    one, two, best = (_all_reduced_ns("custom", shots, 1 << 13) for shots in ("one-shot", "two-shot", ""))
    assert best <= one < two, "a small one has no time for a second barrier"
    assert _all_reduced_ns("custom", "two-shot", 1 << 24) < _all_reduced_ns("custom", "one-shot", 1 << 24)


@pytest.mark.parametrize(("header", "row"), [
    ("gpu,dtype,m,n,k,tflops,source\n", "H100-SXM,bf16,8192,8192,8192,{rate},me\n"),
    ("gpu,dtype,m,n,k,tflops,time_us_derived,source\n", "H100-SXM,bf16,8192,8192,8192,,{us},me\n")])
def test_a_rate_above_the_peak_is_left_out(header, row, tmp_path, error_of):
    def read(rate):
        return read_text(header + row.format(rate=rate, us=2e-6 * 8192 ** 3 / rate), "x.csv")
    assert len(compare(read(980)).rows) == 1
    reason, = compare(read(1100)).left_out
    assert reason == "the row's rate is above the peak of h100-sxm, 989 TFLOP/s in bf16"
    (tmp_path / "gemms.csv").write_text(header + row.format(rate=1100, us=2e-6 * 8192 ** 3 / 1100))
    assert "above the peak of h100-sxm" in error_of(
        "calibrate", "--machine", "h100-sxm", "--rows", str(tmp_path / "gemms.csv"), "--out", str(tmp_path / "m.toml"))


def test_json_has_what_the_order_names(tmp_path, json_of):
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + ROW.format(size=1 << 24, time=269))
    told = json_of("validate", "--rows", str(path))
    (row,) = told["rows"]
    assert row["error"] == pytest.approx(row["ours_ns"] / row["measured_ns"] - 1) and row["measured_ns"] == 269e3
    for by in ("by_machine", "by_quantity"):
        (summary,) = told["summary"][by].values()
        assert {"rows", "mean_abs_error", "worst", "signs_right", "signs"} <= summary.keys()


def test_a_log_is_read(tmp_path, json_of):
    first, second = read_log(LOG, "x.log")
    assert first.ask == Collective("all_reduce", 2, 1, 1 << 20, "NCCL") and first.ns == 40e3
    assert second.gpu == "NVIDIA A100-SXM4-80GB" and second.ns == 400e3
    path = tmp_path / "x.log"
    path.write_text(LOG)
    assert len(json_of("validate", "--log", str(path))["rows"]) == 2


@pytest.mark.parametrize(("bus", "operation", "kind"), [
    ("45.87", "sum", "all_reduce"), ("22.93", "sum", "reduce_scatter"), ("22.93", "none", "all_gather")])
def test_which_collective_a_log_is_of_follows_from_its_bandwidths(bus, operation, kind):
    ranks = "".join(f"#  Rank  {rank} Pid 1 on host device  {rank} [0000:05:00.0] AMD Instinct MI300X\n"
                    for rank in range(8))
    line = f"  1048576  262144  float  {operation}  -1  40.00  26.21  {bus}  0  40.0  26.21  {bus}  0\n"
    (row,) = read_log(f"# rccl-tests\n{ranks}{line}", "x.log")
    assert (row.ask.kind, row.ask.gpus, row.ask.library) == (kind, 8, "RCCL")


@pytest.mark.parametrize(("text", "words"), [
    ("", "no line of results"), ("hello\n" * 3, "no line of results"),
    (" 1024 256 float sum -1 3.0 1.0 1.0 0\n", "before its results"),
    (LOG.replace(" NVIDIA A100-SXM4-80GB", ""), "does not name its GPUs"),
])
def test_bad_logs_are_one_line(text, words):
    with pytest.raises(BadRows, match=words) as told:
        read_log(text, "x.log")
    assert "\n" not in str(told.value)


def test_a_kind_of_rows_is_known_by_its_columns_alone():
    """No file's columns are taken for those of another kind."""
    for one in READERS:
        assert next(other for other in READERS if other.columns <= one.columns) is one


GPUS = ("H100-SXM", "A100", "V100", "L20", "GB200 NVL72", "B300", "MI300X", "MI355X", "MI308X", "H200", "TPU", "H800")
WORDS = ("", "?", "0", "-1", "1", "3", "72", "1000000", "1e300", "nan", "fp4", "int8", "scan", "all_gather", "ring",
         "multimem 2 CTAs", "SDMA", "msccl++", "one-shot", "gemm+rs", "ag+gemm", "moe", "NCCL 2.29", "64 MiB",
         "gemm 1x1x1 fp4", "é", "llama-3.3-70b")


@pytest.mark.parametrize(("package", "name"), [(package, name) for package, names in FILES.items() for name in names])
def test_whatever_a_row_says_is_answered_named_or_refused_in_one_line(package, name, rng):
    text = resources.files(package).joinpath(f"{name}.csv").read_text("utf-8")
    header, *rows = csv.reader(line for line in text.splitlines() if not line.startswith("#"))
    for _ in range(40):
        row = list(rng.choice(rows))
        for _ in range(rng.choice((1, 1, 2, 3))):
            row[rng.randrange(len(row))] = rng.choice(WORDS)
        if "gpu" in header:
            row[header.index("gpu")] = rng.choice(GPUS)
        written = io.StringIO()
        csv.writer(written).writerows((header, row))
        try:
            compare(read_text(written.getvalue(), "x.csv")).to_json()
        except BadRows as told:
            assert "\n" not in str(told)


def test_rows_that_gave_a_constant_are_counted_apart():
    found = compare(own_rows(), "h100-sxm")
    fitted = [one for one in found.rows if one.fitted]
    assert 10 < len(fitted) < len(found.rows) / 5
    assert all(summary["predicted"]["rows"] + summary["fitted"]["rows"] == summary["rows"]
               for summary in found.grouped("quantity").values())


RCCL = """# Collective test starting: {test}_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 validation: 1 graph: 0
rccl-tests: Version develop:448c4c7
# Using devices
{ranks}#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
{tag}  1048576   524288  bfloat16   sum    -1    61.77   16.98   {first} {wrong}  60.53  17.32  {first}  {wrong}
{tag}  2097152  1048576  bfloat16   sum    -1    70.00   29.96   {second} {wrong}  69.00  30.39  {second}  {wrong}
# Errors with asterisks indicate errors that have exceeded the maximum threshold.
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 42.0
"""


def _rccl(test="all_reduce", hosts=1, tag="", wrong="0", gpu="AMD Instinct MI300X"):
    ranks = "".join(f"{tag}#  Rank {rank:2d} Group  0 Pid {4000 + rank} on node-{rank // 8} device {rank % 8:2d} "
                    f"[0000:0c:00] {gpu}\n" for rank in range(8 * hosts))
    ratio = (1 + (test == "all_reduce")) * (8 * hosts - 1) / (8 * hosts)
    return RCCL.format(test=test, ranks=ranks, tag=tag, first=f"{16.98 * ratio:.2f}", second=f"{29.96 * ratio:.2f}",
                       wrong=wrong)


@pytest.mark.parametrize(("text", "kind", "gpus", "nodes", "library"), [
    (_rccl(), "all_reduce", 8, 1, "RCCL"), (_rccl(wrong="2e-07"), "all_reduce", 8, 1, "RCCL"),
    (_rccl(wrong="N/A", hosts=2, tag="[1,0]<stdout>:"), "all_reduce", 16, 2, "RCCL"),
    (_rccl("alltoall", hosts=4, tag="0: ", gpu="NVIDIA H100 80GB HBM3").replace("rccl", "nccl"), "all_to_all", 32, 4,
     "NCCL")])
def test_logs_of_real_runs(text, kind, gpus, nodes, library):
    """16-bit brains, columns in place, errors instead of counts, several nodes, and lines that a launcher tags."""
    found = read_log(text, "a.log")
    assert [(one.ask.kind, one.ask.gpus, one.ask.nodes, one.ask.library, one.ns) for one in found] == [
        (kind, gpus, nodes, library, 61_770), (kind, gpus, nodes, library, 70_000)]


@pytest.mark.parametrize(("line", "setup"), [
    ("nThread 1 nGpus 1 ", ""), ("nThread 1 nGpus 8 ", "8 GPUs per thread"),
    ("nThread 2 nGpus 4 ", "4 GPUs per thread"),
    ("nThread 1 nGpus 8 agg iters: 1 graph: 10 ", "8 GPUs per thread, CUDA graph")])
def test_a_log_says_how_its_program_calls(line, setup):
    text = replaced(replaced(_rccl(), "nThread 1 nGpus 1 ", line), "validation: 1 graph: 0", "validation: 1")
    assert {one.ask.algorithm for one in read_log(text, "a.log")} == {setup}
    mixed = read_log(f"{text}{_rccl()}", "a.log")
    assert [one.ask.algorithm for one in mixed] == [setup, setup, "", ""], "each test for itself"


@pytest.mark.parametrize(("columns", "read"), [
    ("sum  -1  1234  18.64  18.64  0", 1234e3), ("sum  -1  56.26  18.64  18.64  N/A", 56260),
    ("sum  56.26  18.64  18.64  4e-07", 56260), ("sum  1234  18.64  18.64  4e-07", 1234e3),
    ("56.26  18.64  18.64  0e+00", 56260), ("1234  18.64  18.64  0e+00", 1234e3),
    ("sum  -1  56.26  18.64  18.64  12", None)])
def test_times_of_old_versions_are_no_roots_and_times_of_wrong_values_are_named(columns, read):
    line = f" 1048576 262144 float {columns} {' '.join(columns.split()[-4:])}\n"
    (row,) = read_log(LOG.partition("     1048576")[0] + "# all_reduce_perf\n" + line, "x.log")
    assert getattr(row, "ns", None) == read and (read or "wrong values" in row.reason)


def _printed(groups=1, test=None, operation="sum", ratio=1.75):
    """What a run of nccl-tests on groups of eight GPUs prints, a node per group."""
    ranks = "".join(f"#  Rank {rank % 8:2d} Group {rank // 8:2d} Pid {400 + rank} on host{rank // 8} "
                    f"device {rank % 8:2d} [0000:0f:00] NVIDIA H100 80GB HBM3\n" for rank in range(8 * groups))
    rows = "".join(f"{size:12d}  {size // 4:12d}     float  {operation:>6}      -1  {us:7.2f}  {size / us / 1e3:6.2f}  "
                   f"{ratio * size / us / 1e3:6.2f}       0\n" for size, us in ((1 << 20, 38.0), (1 << 28, 1100.0)))
    return (f"{f'$ {test} -b 1M' if test else '#'}\n# nThread 1 nGpus 1 minBytes 1048576\n# Using devices\n{ranks}#\n"
            f"#       size         count      type   redop    root     time   algbw   busbw #wrong\n{rows}"
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 98.76\n#\n")


def _asked(text, *arguments):
    return [(one.ask.kind, one.ask.gpus, one.ask.nodes, one.ns) for one in read_log(text, "x.log", *arguments)]


EIGHT = [("all_reduce", 8, 1, 38e3), ("all_reduce", 8, 1, 1100e3)]


@pytest.mark.parametrize("label", [
    " 0: ", "00: ", "0: ", "node1: ", "node1 : ", "[1,0]<stdout>:", "[1,0]<stdout>: ", "[job-node1-77@1,0]<stdout>: ",
    "[prterun-n-7@1,0]: ", "2026-03-05T10:11:12.000015Z ", "2026-03-05T10:11:12+01:00 stdout F ",
    "[pod/nccl-launcher-x7k2p/mpi] 2026-03-05T10:11:12.5Z ", "launcher-1  | ", "Mar  5 10:11:12 node1 run[123]: ",
    "[2026-03-05 10:11:12,123] INFO ", "1,0: ", "\t", "\x1b[32m[0]\x1b[0m ", "(worker pid=123, ip=10.0.0.1) "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\x1b[0m\n"])
def test_what_a_launcher_writes_before_a_line_is_passed_over(label, end):
    assert _asked("".join(f"{label}{line}{end}" for line in _printed().splitlines())) == EIGHT


def test_ranks_of_several_processes_have_labels_of_their_own():
    lines = _printed().splitlines()
    assert _asked("\n".join(f"{place % 8:2d}: {line}" if "Rank" in line else f" 0: {line}"
                            for place, line in enumerate(lines))) == EIGHT


def test_ranks_of_a_test_that_gave_up_are_not_those_of_the_next():
    begun = _printed().partition("#       size")[0]
    assert _asked(begun + "node1: Test NCCL failure\n" + _printed()) == EIGHT
    assert _asked(replaced(begun, "host0", "other") + "#       size         count      type\n" + _printed()) == EIGHT


def test_of_groups_side_by_side_the_first_is_what_the_test_printed():
    assert _asked(_printed(groups=2)) == EIGHT
    by_turns = re.sub(r"Rank +(\d+) Group +0", lambda rank: f"Rank {rank[1]} Group {int(rank[1]) % 2}", _printed())
    by_turns = by_turns.replace("48.29", "41.39").replace("427.06", "366.05")  # 1.5 times the algorithm bandwidth
    assert {one[:3] for one in _asked(by_turns)} == {("all_reduce", 4, 1)}


@pytest.mark.parametrize(("text", "words"), [
    (re.sub(r"Rank +\d+", "Rank  0", _printed()), "line 5: rank 0 appears twice, on 'host0' and 'host0': each"),
    (re.sub(r"Rank +\d+ Group +\d+", "Rank 0", _printed(groups=2)), "each process ran a test of its own"),
    ("\n".join(line for line in _printed().splitlines() if not re.search("Rank +[1-7]", line)), "on one GPU alone"),
    ("\n".join(line for line in _printed().splitlines() if not re.search("Rank +[67]", line)), "1.750, which no test"),
    (_printed().replace("Rank  3", "rank  3"), "no line of rank 3"),
    (_printed(ratio=1.9), "line 15: busbw / algbw is 1.900, which no test with this operation has on 8 GPUs"),
    (_printed(test="all_reduce_perf", ratio=1.2), "1.200, which no test"),
    (json.dumps({"version": 3, "devices": [], "results": []}), "a JSON report is not read: give the text"),
    (json.dumps([{"name": "all_reduce", "size": 1}], indent=1), "a JSON report is not read"),
    (_printed().replace(" time", " cputime"), "CPU time"),
    (_printed(test="./alltoallv_perf", operation="none", ratio=0.875), "'alltoallv_perf' has no model"),
])
def test_a_log_that_says_no_collective_time_is_refused_by_what_it_is(text, words):
    with pytest.raises(BadRows, match=words):
        read_log(text, "x.log")


@pytest.mark.parametrize("program", [
    "mpirun -np 8 /opt/gpu_perf/nccl-tests/build/all_reduce_perf", "/data/all_gather_perf/all_reduce_perf",
    "/opt/my_perf/run", "all_reduce_perf_mpi", "./rccl_all_reduce_perf", "# Collective test starting: all_reduce_perf"])
def test_a_test_is_named_by_its_program_and_not_by_a_folder(program):
    assert _asked(_printed(test=program)) == EIGHT


def test_a_table_whose_bandwidths_contradict_the_name_before_it_has_a_test_of_its_own():
    gather = _printed(test="./build/all_gather_perf", operation="none", ratio=0.875)
    kinds = [one[0] for one in _asked(gather + _printed() + "# Collective test concluded: all_reduce_perf\n" + gather)]
    assert kinds == ["all_gather"] * 2 + ["all_reduce"] * 2 + ["all_gather"] * 2
    assert [one[0] for one in _asked(_printed(operation="none", ratio=0.875)
                                     + "# Collective test concluded: alltoall_perf\n" + _printed())] == [
        "all_to_all"] * 2 + ["all_reduce"] * 2


def test_a_test_that_bandwidths_alone_cannot_tell_is_called_a_guess():
    by = {"sum": read_log(_printed(), "x.log"), "none": read_log(_printed(operation="none", ratio=0.875), "x.log"),
          "scatter": read_log(_printed(ratio=0.875), "x.log"), "send": read_log(_printed(ratio=1.0), "x.log")}
    assert {name: one[-1].ask.kind for name, one in by.items()} == {
        "sum": "all_reduce", "none": "all_gather", "scatter": "reduce_scatter", "send": "send_recv"}
    assert [name for name, one in by.items() if "a guess" in one[-1].scenario] == ["none"]
    assert by["none"][-1].scenario == "all_gather (a guess, or alltoall) on 8 GPUs, 256 MB"


def test_lines_that_cannot_be_read_and_wrong_values_are_named():
    first, last = (line for line in _printed().splitlines() if " float " in line)
    text = _printed().replace(first, first[:60] + " NCCL INFO\n" + first.removesuffix("0") + "1e+06")
    cut, wrong, whole = read_log(text, "x.log")
    assert cut.reason == "x.log, line 14: the line of results is not whole" and "wrong values" in wrong.reason
    assert whole.ns == 1100e3
    timed = _printed().replace(last, f"{last}  2026-03-05 10:11:12")
    assert _asked(timed) == EIGHT


@pytest.mark.parametrize("kind", ["AllReduce", "all-reduce", "allreduce", "ALL_REDUCE", "all reduce"])
def test_a_collective_may_be_written_as_libraries_write_it(kind):
    (row,) = read_text(HEADER + ROW.format(size=1 << 20, time=50).replace("all_reduce", kind), "x.csv")
    assert row.ask.kind == "all_reduce"


def test_a_log_of_a_test_without_a_model_is_one_line():
    with pytest.raises(BadRows, match="gather_perf.*has no model: all_reduce_perf"):
        read_log(_rccl("gather"), "a.log")


@pytest.mark.long
def test_a_constant_that_machines_share_comes_from_the_rows_of_all():
    found = constants((one.row, one.machine) for one in compare(own_rows(), None).rows if one.fitted)
    assert found["mi300x, mi308x, mi325x", "sustained.bf16"] == 3
    assert found["mi355x", "direct.base_ns, direct.phase_ns, direct.efficiency"] == 4
    assert found["h100-sxm", "sustained.bf16"] == 3, "rows of machines that extend it gave it nothing"


def test_an_a100_on_pcie_has_rows():
    found = compare(own_rows(), "a100-pcie")
    assert found.rows and not any(one.fitted for one in found.rows)
    assert all(abs(one.error) < 0.1 for one in found.rows)


def test_what_the_page_says_is_reached_is_reached():
    """Errors by quantity, as docs/results/validation.md has them."""
    by = compare([one for one in own_rows() if getattr(one, "quantity", "") != "training"]).grouped("quantity")
    page = (ROOT / "docs" / "results" / "validation.md").read_text()
    verdicts = {name: f"| {name} |" in page and page.split(f"| {name} |")[1].split("\n")[0].endswith("| reached |")
                for name in TARGETS}
    assert verdicts == {name: bool(TARGETS[name][1](by[name])) for name in TARGETS}
    assert {name for name, reached in verdicts.items() if reached} >= {
        "GEMM", "collective from 1 MB", "dispatch and combine", "prompt"}


def test_the_page_has_every_machine_and_a_picture_of_each(tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    hostile = ROW.replace("somebody", r"<script>alert(1)</script>|$\frac$")
    rows.write_text(HEADER + "".join(hostile.format(size=1 << shift, time=50) for shift in range(20, 24)))
    assert main(["validate", "--rows", str(rows), "--out", str(tmp_path / "page")]) == 0
    capsys.readouterr()
    page = (tmp_path / "page" / "validation.md").read_text()
    assert "<script" not in page and r"&lt;script&gt;alert(1)&lt;/script&gt;\|$\frac$" in page
    drawn = (tmp_path / "page" / "validation-a100-sxm.svg").read_text()
    assert "](validation-a100-sxm.svg)" in page and ">bytes</text>" in drawn and "<script" not in drawn
    with (tmp_path / "page" / "validation.csv").open(newline="") as file:
        numbers = {row["of"]: row for row in csv.DictReader(file)}
    assert numbers["all"]["rows"] == "4" and numbers["all"] | {"of": ""} == numbers["a100-sxm"] | {"of": ""}


def test_a_row_by_itself_is_a_line_of_a_table_and_an_old_picture_goes(tmp_path):
    (tmp_path / "validation-of-an-old-machine.svg").touch()
    one = next(row for row in own_rows() if isinstance(row, Measured) and row.quantity == "GEMM")
    write_page(tmp_path, compare([one]))
    assert {path.name for path in tmp_path.iterdir()} == {"validation.md", "validation.csv"}
    assert f"{one.ns / 1e3:,.1f}" in (tmp_path / "validation.md").read_text().split("row of no curve")[1]


def test_what_a_kernel_loses_beside_units_is_on_the_page(tmp_path):
    rows = ("gpu,compute,by,units,gb_per_s,alone_us,beside_us,source\n"
            "H100,gemm 1024x8192x8192 bf16,held units,4,,100,185,me\n"
            "H100,add of 134217728 bf16,held units,4,,100,100,me\n"
            "H100,add of 134217728 bf16,copy engines,,100,100,101,me\nH100,softmax of 64 bf16,held units,4,,1,2,me\n"
            "H100,gemm 512x512x512 bf16,held units,132,,1,2,me\n")
    found = compare(read_text(rows, "x.csv"))
    for kernel in ("gemm 64x64 bf16", "gemm 0x1x1 bf16", "gemm 64x64x bf16", "attention 8x8 bf16", "add of 64 fp8"):
        assert not compare(read_text(rows.splitlines()[0] + f"\nH100,{kernel},held units,4,,1,2,me\n", "x.csv")).ratios
    with pytest.raises(BadRows, match="line 2: by = '<b>' is unknown: allowed are held units,"):
        read_text(rows.splitlines()[0] + "\nH100,gemm 64x64x64 bf16,<b>,4,,1,2,me\n", "x.csv")
    assert len(found.ratios) == 3 and {*found.left_out} == {
        "kernels called 'softmax of 64 bf16' have no model", "h100-sxm has 132 compute units"}
    write_page(tmp_path, found)
    assert "| h100-sxm | beside held units | 43 / 41 |" in (tmp_path / "validation.md").read_text()
    lines = (tmp_path / "validation-units.csv").read_text().splitlines()
    drawn = (tmp_path / "validation-units.svg").read_text()
    assert all(words in drawn for words in ("gemm 1024x8192x8192 bf16", "measured, h100-sxm", "units held"))
    assert len(lines) == 4 and lines[3].startswith("h100-sxm,add of 134217728 bf16,copy engines,0,100,1.0,")


def test_a_row_that_gave_a_constant_is_filled_and_all_others_are_hollow():
    rows = compare([row for row in own_rows() if isinstance(row, Measured)], "dgx-v100").rows
    points = [(float(place), row) for place, row in enumerate(rows)]
    with matplotlib.rc_context():
        axes = draw_curves({"all": ("bytes", points)}).axes[0]
        lines = {line.get_label(): line for line in axes.get_lines()}
    filled = sum(row.fitted for row in rows)
    assert 0 < filled < len(rows) and axes.get_xlabel() == "bytes"
    assert len(lines["measured, gave a constant"].get_xdata()) == filled
    assert lines["measured"].get_markerfacecolor() == "none" != lines["measured, gave a constant"].get_markerfacecolor()


def test_pictures_of_the_page_are_small():
    pictures = [*(ROOT / "docs" / "results").glob("*.svg")]
    assert pictures and sum(path.stat().st_size for path in pictures) < 500_000


EXCHANGE = "gpu,gpus,nodes,operation,library,tokens_per_gpu,hidden,top_k,experts,dtype,latency_us,source\n"


def _exchanged_ns(operation: str, library: str, gpus: int = 16, nodes: int = 2, dtype: str = "bf16", top_k: int = 8,
                  experts: int = 64) -> float:
    text = f"{EXCHANGE}H100-SXM,{gpus},{nodes},{operation},{library},4096,7168,{top_k},{experts},{dtype},1,me\n"
    one, = compare(read_text(text, "x.csv")).rows
    return one.ours_ns


def test_kernels_send_a_token_once_per_node_and_gpu_those_for_few_tokens_once_per_expert():
    each, once = _exchanged_ns("dispatch", "DeepEP low latency"), _exchanged_ns("dispatch", "HybridEP")
    assert 3.5 < each / once < 4.1  # eight experts lie on two nodes: four times the bytes through the cards
    single = [_exchanged_ns("dispatch", library, top_k=1) for library in ("DeepEP low latency", "HybridEP")]
    assert single[0] == pytest.approx(single[1])
    both = _exchanged_ns("dispatch + combine", "HybridEP", dtype="fp8")
    assert both == pytest.approx(_exchanged_ns("dispatch", "HybridEP", dtype="fp8")
                                 + _exchanged_ns("combine", "HybridEP"))


def test_an_exchange_that_cannot_be_is_left_out():
    for operation, gpus, nodes in (("shuffle", 16, 2), ("dispatch", 16, 1), ("dispatch", 15, 2)):
        text = f"{EXCHANGE}H100-SXM,{gpus},{nodes},{operation},DeepEP,4096,7168,8,64,bf16,1,me\n"
        assert not compare(read_text(text, "x.csv")).rows
    text = f"{EXCHANGE}H100-SXM,8,1,dispatch,somebody's,4096,7168,8,64,bf16,1,me\n"
    assert any("library \"somebody's\" has no model" in reason for reason in compare(read_text(text, "x.csv")).left_out)
    with pytest.raises(BadRows, match="top_k = 9 is more than its experts = 8"):
        read_text(f"{EXCHANGE}H100-SXM,8,1,dispatch,DeepEP,4096,7168,9,8,bf16,1,me\n", "x.csv")
