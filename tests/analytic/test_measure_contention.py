"""The program that measures contention on a GPU, as far as a machine without one can say.

What is compiled here is the program's host logic alone: its kernels and its calls of CUDA are not checked by a test.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from t3sim.analytic.validation.comparison import compare
from t3sim.analytic.validation.readers import read_text

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "measure_contention.cu"

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
                    points.push_back({shape, copier, rate, rate < 0 ? 180 : rate, times_of({30, 10, 20}),
                                      times_of({40, 60, 50})});
        std::fputs(csv_of({"NVIDIA H100", "2000-01-01", 1, 2}, options, points).c_str(), stdout);
    } catch (const std::invalid_argument &error) {
        std::fputs(error.what(), stderr);
        return 2;
    }
}
"""


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


@pytest.mark.long
def test_what_the_program_writes_is_validated(host_logic):
    done = host_logic("--gemm", "512x256x128,64x64x64", "--rates", "0,12.5,max", "--blocks", "4")
    assert done.returncode == 0, done.stderr
    found = compare(read_text(done.stdout, "measured.csv"))
    assert not found.left_out and [one.row.measured for one in found.ratios] == [150.0] * 12
    assert [one.row.scenario.partition(" beside ")[2] for one in found.ratios[3:6]] == [
        "4 held units", "4 copying units at 12 GB/s", "4 copying units at 180 GB/s"]
    assert [one.row.first.gb_per_s for one in found.ratios[:6]] == [0.0, 12.5, 180.0, 0.0, 25.0, 360.0]


@pytest.mark.long
def test_copies_to_another_gpu_are_read_once(host_logic):
    done = host_logic("--gemm", "512x256x128", "--rates", "12.5", "--to", "1", "--copiers", "kernel")
    assert [one.first.gb_per_s for one in read_text(done.stdout, "measured.csv")] == [12.5]


@pytest.mark.parametrize(("arguments", "words"), [
    (["--gemm", "512x256"], "--gemm 512x256: MxNxK"), (["--gemm", "512x0x1"], "--gemm 0: a whole number from 1"),
    (["--rates", "fast"], "--rates fast: 0, GB/s from 0.1"), (["--rates", "nan"], "--rates nan"),
    (["--copiers", "dma"], "--copiers dma: engine or kernel"), (["--blocks", ""], "--blocks : a whole number"),
    (["--repeats"], "--repeats: a value is needed"), (["--speed", "1"], "--speed is unknown")])
def test_bad_options_are_named(host_logic, arguments, words):
    done = host_logic(*arguments)
    assert done.returncode == 2 and done.stdout == "" and words in done.stderr
