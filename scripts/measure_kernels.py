"""Measure GEMMs, and what kernels lose beside units that are held or copy, on GPUs of NVIDIA or AMD.

    python scripts/measure_kernels.py --out FOLDER

writes `gemms.csv`, `beside.csv` and `steady.csv` there, and with several GPUs `contention.csv`: GEMMs beside
all-gathers of NCCL or RCCL. `t3 calibrate --rows` and `t3 validate --rows` read them. When a table's
time is over, what is left of it is left out: all end about five minutes after the start. Needs PyTorch alone.

A GEMM is timed with operands in memory (the cache is read full of other data before), as replays of a graph, so that
the host's launch is not in it. A kernel beside others is timed in turns with the same kernel alone, for power moves the
clock.

A kernel of Triton holds units, because no operator of PyTorch keeps a known number of them for a known time. Triton
comes with PyTorch and compiles one source for both vendors. The kernel ends by itself after some rounds: a flag of the
host would have to get past a GPU's caches, and polls of it slow other kernels.
"""

import argparse
import csv
import random
import statistics
import sys
import time
from functools import cache
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

GPU = torch.device("cuda:0")
IS_AMD = torch.version.hip is not None
WORDS, CHUNKS = 1 << 14, 1 << 13  #: of 4 bytes in a chunk that a unit copies at once; chunks
LAYERS = ((8192, 3584), (7168, 8192), (1280, 8192), (8192, 1024))  # N x K: Llama-70B on 8 GPUs
LARGER = ((4096, 14336), (28672, 4096), (6144, 4096), (7168, 2048), (4096, 7168), (53248, 16384))  # other models
PAPER = ((8192, 4256, 2128), (8192, 4256, 1064), (8192, 4096, 512), (16384, 3072, 1536), (16384, 3072, 768))  # T3
BESIDE = ((8192, 8192, 8192), (8192, 8192, 3584), (1024, 8192, 8192), (1024, 8192, 3584), (2048, 8192, 3584),
          (8192, 1280, 8192), (3072, 3072, 3072), (512, 8192, 3584), (2048, 2048, 2048), (8192, 4256, 2128),
          (16384, 3072, 1536), (16, 8192, 8192), (128, 8192, 8192))
#: Units that are held, then units that copy with so many waits after each chunk.
HELD = [(units, None) for units in (1, 2, 4, 8, 16, 24, 32, 48, 64)]
HELD += [(units, waits) for units, waits in ((8, 0), (16, 0), (24, 0), (32, 0), (32, 12), (64, 0))]
#: Seconds from the start after which a table gets no more points.
UNTIL_S = {"gemms": 130.0, "beside": 260.0, "contention": 275.0, "steady": 300.0}


@triton.jit(do_not_specialize=["rounds", "chunks", "waits"])
def hold(source, target, cells, rounds, chunks, waits, WORDS: tl.constexpr):
    """Hold a unit per program for some rounds: of a chunk that it copies, if there are any, and of waits after it."""
    unit, words = tl.program_id(0), tl.arange(0, WORDS)
    came = unit * 0
    for turn in range(rounds):
        if chunks > 0:
            place = ((turn * tl.num_programs(0) + unit) % chunks).to(tl.int64) * WORDS + words
            tl.store(target + place, tl.load(source + place))
        for _ in range(waits):  # each for the one before it, through the cache of the GPU
            came = tl.atomic_add(cells + 32 * unit, came & 1)


def has_fp8():
    """Say whether the GPU multiplies 8 bits."""
    if IS_AMD:
        return torch.cuda.get_device_properties(0).gcnArchName.startswith(("gfx94", "gfx95", "gfx12"))
    return torch.cuda.get_device_capability(0) >= (8, 9)


def fp8():
    """Return the GPU's format of 8 bits: MI300's has other exponents."""
    is_mi300 = IS_AMD and torch.cuda.get_device_properties(0).gcnArchName.startswith("gfx94")
    return torch.float8_e4m3fnuz if is_mi300 else torch.float8_e4m3fn


def graph_of(work):
    """Return a graph that does `work` once, warmed up."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def times_us(graph, count, before=None):
    """Return the times of replays, each after `before`."""
    times = []
    for _ in range(count):
        if before is not None:
            before()
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end))
    return times


def gemm(dtype, m, n, k, gpu=GPU):
    """Return a GEMM of random operands as PyTorch calls the vendor's library."""
    left, right = (torch.randn(rows, k, device=gpu, dtype=torch.bfloat16) for rows in (m, n))
    if dtype == "bf16":
        return lambda: torch.mm(left, right.t())
    left, right = left.to(fp8()), right.to(fp8())
    one = torch.ones((), device=gpu)
    return lambda: torch._scaled_mm(left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def kernels(work):
    """Return the names of the kernels that `work` launches."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    return " + ".join(one.name.replace("void ", "").partition("<")[0] for one in seen.events()
                      if one.device_type == torch.autograd.DeviceType.CUDA)


class Held:
    """Units that a kernel holds, and that copy within the GPU unless `waits` is None; 0: as fast as they can."""

    def __init__(self, units, waits):
        self.units, self.waits, self.rate = units, waits, 0.0
        self.by = "held units" if waits is None else "copying units"

    @classmethod
    def prepare(cls):
        """Allocate what all of them share."""
        cls.source, cls.target = (torch.zeros(WORDS * CHUNKS, dtype=torch.int32, device=GPU) for _ in range(2))
        cls.cells = torch.zeros(32 * 1024, dtype=torch.int32, device=GPU)
        cls.stream = torch.cuda.Stream()

    def launch(self, rounds):
        """Start the kernel, and return events around it."""
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        with torch.cuda.stream(self.stream):
            start.record()
            hold[(self.units,)](self.source, self.target, self.cells, rounds, 0 if self.waits is None else CHUNKS,
                                1 if self.waits is None else self.waits, WORDS=WORDS,
                                num_warps=16 if IS_AMD else 32)  # 1,024 threads, beside which few kernels fit on a unit
            end.record()
        return start, end

    def during(self, measure, needed_s):
        """Return what `measure` returns while the units are held, which takes about `needed_s`."""
        rounds = 64
        while True:
            start, end = self.launch(rounds)
            end.synchronize()
            if (round_s := 1e-3 * start.elapsed_time(end) / rounds) * rounds > 1e-3:
                break
            rounds *= 8
        for _ in range(5):
            rounds = int(needed_s / round_s) + 1
            start, end = self.launch(rounds)
            time.sleep(0.002)
            result = measure()
            outlasted = not end.query()
            end.synchronize()
            if outlasted:
                copied_bytes = 0 if self.waits is None else 4.0 * WORDS * rounds * self.units
                self.rate = copied_bytes / (1e6 * start.elapsed_time(end))
                return result
            needed_s *= 2
        raise RuntimeError(f"{self.by}: the kernel that holds {self.units} units ends too early")


class Engines:
    """Copy engines that move data to and from the host's memory."""

    by, units = "copy engines", 0

    @classmethod
    def prepare(cls):
        """Allocate memory of the host and of the GPU."""
        cls.host = [torch.empty(1 << 26, dtype=torch.uint8).pin_memory() for _ in range(2)]
        cls.on_gpu = [torch.empty(1 << 26, dtype=torch.uint8, device=GPU) for _ in range(2)]
        cls.streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def during(self, measure, needed_s):
        """Return what `measure` returns while data moves, for about `needed_s` at 50 GB/s each way."""
        count = max(4, int(needed_s * 50e9 / (1 << 26)) + 1)
        events = [(torch.cuda.Event(True), torch.cuda.Event(True)) for _ in self.streams]
        for stream, (start, end), target, source in zip(self.streams, events, (self.host[0], self.on_gpu[1]),
                                                        (self.on_gpu[0], self.host[1])):
            with torch.cuda.stream(stream):
                start.record()
                for _ in range(count):
                    target.copy_(source, non_blocking=True)
                end.record()
        result = measure()
        torch.cuda.synchronize()
        self.rate = sum((count << 26) / 1e6 / start.elapsed_time(end) for start, end in events)
        return result


def gemm_points():
    """Return format and shape of each GEMM."""
    shapes = [(size, size, size) for size in (512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)] + [*PAPER]
    shapes += [(rows, *layer) for layer in LAYERS for rows in (1, 4, *(1 << power for power in range(4, 15)))]
    shapes += [(rows, *layer) for layer in LARGER for rows in (128, 1024, 4096)]
    points = [("bf16", shape) for shape in shapes]
    if has_fp8():
        points += [("fp8", shape) for shape in shapes if not any(extent % 16 for extent in shape)]
    return points


@cache
def other_data():
    """Return more than any cache holds: a GiB of floats."""
    return torch.ones(1 << 28, device=GPU)


def gemm_row(point):
    """Time a GEMM after other data was read."""
    dtype, (m, n, k) = point
    work = gemm(dtype, m, n, k)
    us = statistics.median(times_us(graph_of(work), 9, other_data().sum))
    return {"dtype": dtype, "m": m, "n": n, "k": k, "tflops": f"{2e-6 * m * n * k / us:.4g}",
            "time_us_derived": f"{us:.2f}", "kernel": kernels(work)}


def beside_points():
    """Return each kernel, as a graph, with each of the others."""
    Held.prepare()
    Engines.prepare()
    query, key, value = (torch.randn(4, 8, 4096, 128, device=GPU, dtype=torch.bfloat16) for _ in range(3))
    left, right = (torch.randn(1 << 27, device=GPU, dtype=torch.bfloat16) for _ in range(2))
    rows = torch.randn(8192, 8192, device=GPU, dtype=torch.bfloat16)
    weight = torch.ones(8192, device=GPU, dtype=torch.bfloat16)
    works = {"gemm {}x{}x{} bf16".format(*shape): gemm("bf16", *shape) for shape in BESIDE}
    if has_fp8():
        works |= {"gemm {}x{}x{} fp8".format(*shape): gemm("fp8", *shape) for shape in BESIDE[:5]}
    works |= {"attention 4x8x4096x128 bf16": lambda: functional.scaled_dot_product_attention(query, key, value),
              "add of 134217728 bf16": lambda: torch.add(left, right, out=left),
              "rms_norm 8192x8192 bf16": lambda: functional.rms_norm(rows, (8192,), weight)}
    others = [*(Held(*one) for one in HELD), Engines()]
    graphs = {name: graph_of(work) for name, work in works.items()}
    return [(name, graph, other) for name, graph in graphs.items() for other in others]


def beside_row(point):
    """Time a kernel in turns alone and beside another one."""
    name, graph, other = point
    alone, together, rates = [], [], []
    for _ in range(3):
        alone += times_us(graph, 5)
        together += other.during(lambda: times_us(graph, 5), 15e-6 * statistics.median(alone) + 3e-3)
        rates.append(other.rate)
        time.sleep(0.01)
    return {"compute": name, "by": other.by, "units": other.units or "",
            "gb_per_s": f"{statistics.median(rates):.1f}" if any(rates) else "",
            "alone_us": f"{statistics.median(alone):.2f}", "beside_us": f"{statistics.median(together):.2f}"}


def contention_points():
    """Return each GEMM, and the MiB of each GPU that an all-gather brings to the others meanwhile."""
    shapes = ((8192, 8192, 8192), (16384, 8192, 8192), (8192, 8192, 3584))
    return [(shape, mib) for shape in shapes for mib in (8, 16, 32, 64)] if torch.cuda.device_count() > 1 else []


def contention_row(point):
    """Time a GEMM on every GPU alone, before an all-gather, and beside it."""
    shape, mib = point
    gpus = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    works = [gemm("bf16", *shape, gpu) for gpu in gpus]
    parts = [torch.zeros(mib << 19, dtype=torch.bfloat16, device=gpu) for gpu in gpus]
    wholes = [torch.zeros(len(gpus) * mib << 19, dtype=torch.bfloat16, device=gpu) for gpu in gpus]
    own = [torch.cuda.Stream(gpu) for gpu in gpus]

    def gather(streams):
        torch.cuda.nccl.all_gather(parts, wholes, streams=streams)

    def multiply():
        for gpu, work in zip(gpus, works):
            with torch.cuda.device(gpu):
                work()

    def both():
        gather(own)
        multiply()
        for gpu, stream in zip(gpus, own):
            torch.cuda.current_stream(gpu).wait_stream(stream)

    def in_turn():
        multiply()
        gather([torch.cuda.current_stream(gpu) for gpu in gpus])

    def ms(work):
        times = []
        for count in range(7):
            for gpu, stream in zip(gpus, own):
                torch.cuda.synchronize(gpu)
                stream.wait_stream(torch.cuda.current_stream(gpu))
            start, end = torch.cuda.Event(True), torch.cuda.Event(True)
            start.record()
            own[0].wait_event(start)
            work()
            end.record()
            end.synchronize()
            times += [start.elapsed_time(end)] * (count > 1)
        return statistics.median(times)

    return {"gpus": len(gpus), "compute": "gemm {}x{}x{} bf16".format(*shape),
            "compute_alone_ms": f"{ms(multiply):.4f}", "collective": "all_gather",
            "by": "RCCL kernel" if IS_AMD else "NCCL kernel", "bytes_or_rate": f"{mib} MiB",
            "together_ms": f"{ms(both):.4f}", "remark": f"sequential {ms(in_turn):.4f} ms"}


def steady_points():
    """Return format and shape of GEMMs."""
    return [(dtype, shape) for dtype in ("bf16", *(["fp8"] if has_fp8() else [])) for shape in BESIDE[:5]]


def steady_row(point):
    """Time a GEMM that runs over and over: at first, and once power has lowered the clock."""
    dtype, shape = point
    graph = graph_of(gemm(dtype, *shape))
    time.sleep(1)
    times, end = [], time.perf_counter() + 1.5
    while time.perf_counter() < end:
        times += times_us(graph, 20)
    return {"compute": "gemm {}x{}x{} {}".format(*shape, dtype),
            "first_us": f"{statistics.median(times[:10]):.2f}",
            "steady_us": f"{statistics.median(times[-len(times) // 3:]):.2f}"}


TABLES = {"gemms": (gemm_points, gemm_row), "beside": (beside_points, beside_row),
          "contention": (contention_points, contention_row), "steady": (steady_points, steady_row)}


def write(path, points, row_of, until):
    """Write rows as they come, in an order drawn at random, until it is time; say how long the rest takes."""
    gpu, software = torch.cuda.get_device_properties(0).name, torch.version.hip or torch.version.cuda
    source = (f"measure_kernels.py, {time.strftime('%Y-%m-%d')}, PyTorch {torch.__version__}, "
              f"{'ROCm' if IS_AMD else 'CUDA'} {software}")
    points, begun = random.Random(0).sample(points, len(points)), time.perf_counter()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = None
        for done, point in enumerate(points):
            passed = time.perf_counter() - begun
            if done and begun + passed > until:
                print(f"\n{path.name}: {len(points) - done} of {len(points)} points are left out: no time",
                      file=sys.stderr)
                return
            row = {"gpu": gpu} | row_of(point) | {"source": source}
            if writer is None:
                writer = csv.DictWriter(file, row, lineterminator="\n")
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            passed = time.perf_counter() - begun
            print(f"\r{path.name}: {done + 1} of {len(points)} points, {passed:.0f} s, about "
                  f"{passed / (done + 1) * (len(points) - done - 1):.0f} s to go ", end="", file=sys.stderr)
    print(file=sys.stderr)


def main():
    """Measure all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="where the tables go")
    folder, begun = parser.parse_args().out, time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    for name, (points_of, row_of) in TABLES.items():
        if points := points_of():
            write(folder / f"{name}.csv", points, row_of, begun + UNTIL_S[name])


if __name__ == "__main__":
    main()
