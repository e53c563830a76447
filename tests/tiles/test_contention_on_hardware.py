"""The program that measures contention on a GPU, as far as a machine without one can say; and what is predicted for it.

What is compiled here is the program's host logic alone: its kernels and its calls of CUDA are not checked by a test.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from t3sim.machine.levels import load_tiles

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "scripts" / "measure_contention.cu"
A100 = load_tiles("a100-nvlink")

MAIN = """
#include <cstdio>
#define HOST_LOGIC_ONLY
#include "%s"
int main(int count, char **words) {
    try {
        Options options = options_of({words + 1, words + count});
        std::vector<Point> points;
        for (auto &shape : options.shapes)
            for (auto &copier : options.copiers)
                for (double rate : options.rates)
                    points.push_back({shape, copier, rate, rate / 2, times_of({30, 10, 20}), times_of({40, 60, 50})});
        std::fputs(json_of({"An \\"example\\"", "2000-01-01", 1, 2, 108, 2039, 1.41}, options, points).c_str(), stdout);
    } catch (const std::invalid_argument &error) {
        std::fputs(error.what(), stderr);
        return 2;
    }
}
"""


def script():
    spec = importlib.util.spec_from_file_location("predict_contention", ROOT / "scripts" / "predict_contention.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


predicting = script()


@pytest.fixture(scope="module")
def host_logic(tmp_path_factory):
    folder = tmp_path_factory.mktemp("host")
    source, made = folder / "main.cpp", folder / "main"
    source.write_text(MAIN % PROGRAM)
    compiler = shutil.which("c++") or "g++"
    subprocess.run([compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", source, "-o", made], check=True, timeout=120)

    def run(*arguments):
        return subprocess.run([made, *arguments], text=True, capture_output=True, timeout=20)
    return run


def example(**changes):
    """An example, written by hand: nothing in it was measured."""
    times = {"median": 100.0, "tenth": 99.0, "ninetieth": 101.0}
    point = {"m": 8192, "n": 4096, "k": 512, "copier": "engine", "asked_gb_per_s": 50.0, "reached_gb_per_s": 50.0,
             "alone_us": times, "beside_us": times, **changes}
    return {"gpu": "an example", "date": "2000-01-01", "driver": 1, "runtime": 1, "compute_units": 108,
            "clock_ghz": 1.4, "memory_gb_per_s": 2039.0, "copying_blocks": 8, "to_another_gpu": False, "repeats": 3,
            "points": [point]}


def predicted(**changes):
    measured = predicting.Measured.model_validate(example(**changes))
    return predicting.predict(A100, measured, measured.points[0])


def test_what_the_program_writes_can_be_read(host_logic, tmp_path):
    done = host_logic("--gemm", "512x256x128,64x64x64", "--rates", "12.5,max", "--blocks", "4", "--repeats", "7",
                      "--to", "1")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "measured.json"
    path.write_text(done.stdout)
    measured = predicting.read(path)
    assert (measured.gpu, measured.copying_blocks, measured.repeats, measured.to_another_gpu) == (
        'An "example"', 4, 7, True)
    assert [(one.m, one.copier, one.asked_gb_per_s, one.reached_gb_per_s) for one in measured.points] == [
        (m, copier, asked, reached) for m in (512, 64) for copier in ("engine", "kernel")
        for asked, reached in ((12.5, 6.25), (None, 0.0))]
    assert measured.points[0].alone_us.model_dump() == {"median": 20, "tenth": 10, "ninetieth": 30}
    assert len(predicting.table(A100, measured)) == 2 + 8


@pytest.mark.parametrize(("arguments", "words"), [
    (["--gemm", "512x256"], "--gemm 512x256: MxNxK"), (["--gemm", "512x0x1"], "--gemm 0: a whole number from 1"),
    (["--rates", "fast"], "--rates fast: GB/s from 0.1"), (["--rates", "nan"], "--rates nan"),
    (["--copiers", "dma"], "--copiers dma: engine or kernel"), (["--blocks", ""], "--blocks : a whole number"),
    (["--repeats"], "--repeats: a value is needed"), (["--speed", "1"], "--speed is unknown")])
def test_bad_options_are_named(host_logic, arguments, words):
    done = host_logic(*arguments)
    assert done.returncode == 2 and done.stdout == "" and words in done.stderr


def test_copies_cost_bandwidth_where_the_gemm_needs_it():
    """A shallow GEMM needs the memory, a deep one does not."""
    shallow = [predicted(k=64, reached_gb_per_s=rate) for rate in (0.0, 200.0, 400.0)]
    assert shallow[0].beside_us == shallow[0].alone_us < shallow[1].beside_us < shallow[2].beside_us
    deep = predicted(m=4096, k=8192, reached_gb_per_s=200.0)
    assert deep.beside_us == deep.alone_us


def test_a_copying_kernel_costs_units():
    by_engine, by_kernel = (predicted(m=4096, k=8192, copier=name).beside_us for name in ("engine", "kernel"))
    assert by_kernel > by_engine


def test_more_than_the_memory_gives_is_not_predicted():
    assert predicted(reached_gb_per_s=1500.0).beside_us is None


def test_wrong_input_is_one_line(tmp_path):
    path = tmp_path / "measured.json"
    path.write_text(json.dumps(example(alone_us=3)))
    for name, word in ((path, "points.0.alone_us"), (tmp_path / "none.json", "No such file")):
        done = subprocess.run([sys.executable, ROOT / "scripts" / "predict_contention.py", name], text=True,
                              capture_output=True, timeout=120)
        assert done.returncode == 2 and word in done.stderr and done.stderr.count("\n") == 1
