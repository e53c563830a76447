"""Measure GEMMs of cuBLAS, and what kernels lose beside units that are held or copy, on one GPU of NVIDIA.

    python scripts/measure_kernels.py --out FOLDER

writes `gemms.csv`, `beside.csv` and `steady.csv` there, with the columns that `t3 validate --rows` reads. Needs PyTorch
and CuPy.

A GEMM is timed with operands in memory (the cache is read full of other data before), as replays of a graph, so that
the host's launch is not in it. A kernel beside others is timed in turns with the same kernel alone, for power moves the
clock. Who waits on the GPU sleeps between looks at the GPU's own memory: polls of the host's memory alone, by 32 units,
made a GEMM take eight times as long.
"""

import argparse
import csv
import statistics
import time
from pathlib import Path

import cupy
import numpy
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

GPU = torch.device("cuda:0")
COPIED_BYTES, CHUNK_BYTES = 1 << 29, 1 << 18
LAYERS = ((8192, 3584), (7168, 8192), (1280, 8192), (8192, 1024))  # N x K: Llama-70B on 8 GPUs
LARGER = ((4096, 14336), (28672, 4096), (6144, 4096), (7168, 2048), (4096, 7168), (53248, 16384))  # other models
PAPER = ((8192, 4256, 2128), (8192, 4256, 1064), (8192, 4096, 512), (16384, 3072, 1536), (16384, 3072, 768))  # T3
BESIDE = ((8192, 8192, 8192), (8192, 8192, 3584), (1024, 8192, 8192), (1024, 8192, 3584), (2048, 8192, 3584),
          (8192, 1280, 8192), (3072, 3072, 3072), (512, 8192, 3584), (2048, 2048, 2048), (8192, 4256, 2128),
          (16384, 3072, 1536), (16, 8192, 8192), (128, 8192, 8192))

HOLD = cupy.RawKernel(r"""
__device__ unsigned long long now() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}
// Hold a compute unit per block until the host says stop; copy chunks meanwhile, unless chunk_ns is negative.
extern "C" __global__ void hold(const uint4 *from, uint4 *to, unsigned long long words, unsigned long long chunks,
                                double chunk_ns, const volatile int *stop, unsigned long long *copied) {
    __shared__ bool over;
    const unsigned long long start = now();
    for (unsigned long long chunk = blockIdx.x;; chunk += gridDim.x) {
        if (threadIdx.x == 0)
            while (!(over = *stop) && (chunk_ns < 0 || now() - start < chunk * chunk_ns)) __nanosleep(500);
        __syncthreads();
        if (over) return;
        const unsigned long long first = chunk % chunks * words;
        for (unsigned long long at = threadIdx.x; at < words; at += blockDim.x) to[first + at] = from[first + at];
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd(copied, words * 16);
    }
}""", "hold", options=("--std=c++17",))


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
    found = []
    for _ in range(count):
        if before is not None:
            before()
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(1e3 * start.elapsed_time(end))
    return found


def gemm(dtype, m, n, k):
    """Return a GEMM of random operands as PyTorch calls cuBLAS."""
    left, right = (torch.randn(rows, k, device=GPU).bfloat16() for rows in (m, n))
    if dtype == "bf16":
        return lambda: torch.mm(left, right.t())
    left, right = left.to(torch.float8_e4m3fn), right.to(torch.float8_e4m3fn)
    one = torch.ones((), device=GPU)
    return lambda: torch._scaled_mm(left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def kernels(work):
    """Return the names of the kernels that `work` launches."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    return " + ".join(one.name.replace("void ", "").partition("<")[0] for one in seen.events()
                      if one.device_type == torch.autograd.DeviceType.CUDA)


def gemms():
    """Yield a row per GEMM and format."""
    other = torch.ones(1 << 28, device=GPU)  # a GiB of floats
    shapes = [(size, size, size) for size in (512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)] + [*PAPER]
    shapes += [(rows, *layer) for layer in LAYERS for rows in (1, 4, *(1 << power for power in range(4, 15)))]
    shapes += [(rows, *layer) for layer in LARGER for rows in (128, 1024, 4096)]
    for dtype in ("bf16", "fp8"):
        for shape in shapes:
            if dtype == "fp8" and any(extent % 16 for extent in shape):
                continue
            work = gemm(dtype, *shape)
            us = statistics.median(times_us(graph_of(work), 9, other.sum))
            m, n, k = shape
            yield {"dtype": dtype, "m": m, "n": n, "k": k, "tflops": f"{2e-6 * m * n * k / us:.1f}",
                   "time_us_derived": f"{us:.2f}", "kernel": kernels(work)}
            time.sleep(0.01)


class Held:
    """Blocks that hold a compute unit each and copy within the GPU at a rate: 0 not at all, None as fast as they go."""

    stop = torch.zeros(1, dtype=torch.int32, device=GPU)
    copied = torch.zeros(1, dtype=torch.int64, device=GPU)
    one = torch.ones(1, dtype=torch.int32).pin_memory()
    source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=GPU)
    target = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=GPU)
    holding, telling = torch.cuda.Stream(), torch.cuda.Stream()

    def __init__(self, units, gb_per_s):
        self.units, self.gb_per_s, self.rate = units, gb_per_s, 0.0
        self.by = "held units" if gb_per_s == 0 else "copying units"

    def __enter__(self):
        self.stop.zero_()
        self.copied.zero_()
        torch.cuda.synchronize()
        pace = {0: -1.0, None: 0.0}.get(self.gb_per_s, CHUNK_BYTES / self.gb_per_s if self.gb_per_s else 0.0)
        self.start = time.perf_counter()
        HOLD((self.units,), (1024,), (self.source.data_ptr(), self.target.data_ptr(), numpy.uint64(CHUNK_BYTES // 16),
                                      numpy.uint64(COPIED_BYTES // CHUNK_BYTES), numpy.float64(pace),
                                      self.stop.data_ptr(), self.copied.data_ptr()),
             stream=cupy.cuda.ExternalStream(self.holding.cuda_stream))
        time.sleep(0.002)
        return self

    def __exit__(self, *_):
        with torch.cuda.stream(self.telling):
            self.stop.copy_(self.one, non_blocking=True)
        self.holding.synchronize()
        self.rate = self.copied.item() / (time.perf_counter() - self.start) / 1e9


class Engines:
    """Copy engines that move data to and from the host's memory."""

    host = [torch.empty(1 << 26, dtype=torch.uint8).pin_memory() for _ in range(2)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    by, units = "copy engines", 0

    def __enter__(self):
        torch.cuda.synchronize()
        self.events = [(torch.cuda.Event(True), torch.cuda.Event(True)) for _ in range(2)]
        count = 60
        for place, stream in enumerate(self.streams):
            with torch.cuda.stream(stream):
                self.events[place][0].record()
                for _ in range(count):
                    if place == 0:
                        self.host[0].copy_(Held.source[:1 << 26], non_blocking=True)
                    else:
                        Held.target[:1 << 26].copy_(self.host[1], non_blocking=True)
                self.events[place][1].record()
        self.bytes = count << 26
        return self

    def __exit__(self, *_):
        torch.cuda.synchronize()
        self.rate = sum(self.bytes / 1e6 / start.elapsed_time(end) for start, end in self.events)


def beside():
    """Yield a row per kernel and what runs beside it."""
    query, key, value = (torch.randn(4, 8, 4096, 128, device=GPU).bfloat16() for _ in range(3))
    left, right = (torch.randn(1 << 27, device=GPU).bfloat16() for _ in range(2))
    rows, weight = torch.randn(8192, 8192, device=GPU).bfloat16(), torch.ones(8192, device=GPU).bfloat16()
    works = {"gemm {}x{}x{} bf16".format(*shape): gemm("bf16", *shape) for shape in BESIDE}
    works |= {"gemm {}x{}x{} fp8".format(*shape): gemm("fp8", *shape) for shape in BESIDE[:5]}
    works |= {"attention 4x8x4096x128 bf16": lambda: functional.scaled_dot_product_attention(query, key, value),
              "add of 134217728 bf16": lambda: torch.add(left, right, out=left),
              "rms_norm 8192x8192 bf16": lambda: functional.rms_norm(rows, (8192,), weight)}
    others = [Held(units, 0) for units in (1, 2, 4, 8, 16, 24, 32, 48, 64)]
    others += [Held(units, rate) for units, rate in ((8, None), (16, None), (24, None), (32, None), (32, 200.0),
                                                     (64, None))]
    for name, work in works.items():
        graph = graph_of(work)
        for other in [*others, Engines()]:
            alone, together, rates = [], [], []
            for _ in range(3):
                alone += times_us(graph, 5)
                with other:
                    together += times_us(graph, 5)
                rates.append(other.rate)
                time.sleep(0.01)
            yield {"compute": name, "by": other.by, "units": other.units or "",
                   "gb_per_s": f"{statistics.median(rates):.1f}" if any(rates) else "",
                   "alone_us": f"{statistics.median(alone):.2f}", "beside_us": f"{statistics.median(together):.2f}"}


def steady():
    """Yield a row per GEMM that runs over and over: as fast as at first, and once power has lowered the clock."""
    for dtype, shape in [(dtype, shape) for dtype in ("bf16", "fp8") for shape in BESIDE[:5]]:
        graph = graph_of(gemm(dtype, *shape))
        time.sleep(1)
        found, end = [], time.perf_counter() + 1.5
        while time.perf_counter() < end:
            found += times_us(graph, 20)
        yield {"compute": "gemm {}x{}x{} {}".format(*shape, dtype),
               "first_us": f"{statistics.median(found[:10]):.2f}",
               "steady_us": f"{statistics.median(found[-len(found) // 3:]):.2f}"}


def write(path, rows):
    """Write rows as they come."""
    gpu = torch.cuda.get_device_properties(0).name
    source = f"measure_kernels.py, {time.strftime('%Y-%m-%d')}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = None
        for row in rows:
            row = {"gpu": gpu} | row | {"source": source}
            writer = writer or csv.DictWriter(file, row, lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()


def main():
    """Measure all tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(), help="where the tables go")
    folder = parser.parse_args().out
    write(folder / "gemms.csv", gemms())
    write(folder / "beside.csv", beside())
    write(folder / "steady.csv", steady())


if __name__ == "__main__":
    main()
