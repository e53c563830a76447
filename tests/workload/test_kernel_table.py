"""Kernels as tables: what builders put in them, what files may hold, and what is refused in one line."""

from dataclasses import fields, replace

import numpy as np
import pytest

from t3sim.workload.interchange.kernel_file import load_kernel
from t3sim.workload.operators.copy import Copy, Pass
from t3sim.workload.operators.gemm import Gemm, Matrix
from t3sim.workload.operators.kernel_table import (
    GROUP,
    LOAD,
    STEP,
    STORE,
    WAIT,
    KernelError,
    KernelTable,
    Route,
    check_memory,
    joined,
    rows_of,
)
from t3sim.workload.operators.tiling import Tiling

A, B, C = 0, 1 << 24, 1 << 25


def gemm(tiling: Tiling, k: int, a_along_k: bool = True, block_k: int = 32) -> Gemm:
    return Gemm(tiling, k, block_k, Matrix(A, 4096), a_along_k, Matrix(B, 4096), C, 2.5, 10.0, 20.0)


def walked(table: KernelTable):
    """(group, member, loads of every step, stores of every step), each as (address, bytes)."""
    for index, group in enumerate(table.groups):
        for member in range(group["workgroups"]):
            loads, stores = [], []
            for step in table.steps[group["first_step"]:group["first_step"] + group["steps"]]:
                for turn in range(step["repeats"]):
                    for kind, blocks, out in (("load", table.loads, loads), ("store", table.stores, stores)):
                        first, count = step[f"first_{kind}"], step[f"{kind}s"]
                        out.append([(int(block["base"] + row * block["pitch"] + turn * block["step_stride"]
                                         + member * block["workgroup_stride"]), int(block["bytes"]))
                                    for block in blocks[first:first + count] for row in range(block["rows"])])
            yield index, member, loads, stores


@pytest.mark.parametrize("k", [32, 96, 100, 20])
@pytest.mark.parametrize("a_along_k", [True, False])
def test_a_gemm_loads_its_operands_and_stores_its_output_once(k, a_along_k):
    """Every element of A and B that a tile needs, step by step, and every element of C exactly once."""
    tiling = Tiling(200, 70, 64, 32, 4)
    written = np.zeros(tiling.output_bytes, int)
    for tile, _, loads, stores in walked(gemm(tiling, k, a_along_k).work(0)):
        m0, n0 = int(tiling.first_row[tile]), int(tiling.first_column[tile])
        rows, columns = int(tiling.rows[tile]), int(tiling.columns[tile])
        for step, found in enumerate(loads[:-1]):
            depth = min(32, k - 32 * step)
            wanted = ([(A + (m0 + row) * 4096 + 64 * step, 2 * depth) for row in range(rows)] if a_along_k else
                      [(A + (32 * step + kk) * 4096 + 2 * m0, 2 * rows) for kk in range(depth)])
            wanted += [(B + (n0 + column) * 4096 + 64 * step, 2 * depth) for column in range(columns)]
            assert found == wanted
        assert len(loads) - 1 == -(-k // 32) and loads[-1] == [] and not any(stores[:-1])
        for address, size in stores[-1]:
            written[address - C:address - C + size] += 1
    wanted = np.zeros((tiling.n, tiling.pitch_bytes), int)
    wanted[:, :2 * tiling.m] = 1
    np.testing.assert_array_equal(written.reshape(wanted.shape), wanted)


def test_a_deep_gemm_takes_no_more_memory_than_a_flat_one():
    """A layer's size is a kilobyte or two per tile, whatever its depth."""
    tiling = Tiling(16384, 16384, 128, 256, 8)
    sizes = {k: sum(getattr(gemm(tiling, k).work(0), name).nbytes for name in ("groups", "steps", "loads", "stores"))
             for k in (64, 1 << 16)}
    assert sizes[64] == sizes[1 << 16] < 1500 * tiling.tiles


def test_a_copy_reads_and_writes_every_byte_once():
    size = 10_000
    passes = Pass((0, 1 << 20), 2 << 20), Pass((2 << 20,), 3 << 20, Route.PEER, updates=True, arrivals=157)
    table = Copy([passes], size, 512, 1.0, 2.0).work(0)
    read, written = {}, {}
    for group, _, loads, stores in walked(table):
        for seen, blocks in ((read, loads), (written, stores)):
            counts = seen.setdefault(int(table.groups["phase"][group]), np.zeros(4 << 20, int))
            for address, count in (one for step in blocks for one in step):
                counts[address:address + count] += 1
    for counts, starts in ((read[0], (0, 1 << 20)), (written[0], (2 << 20,)), (read[1], (2 << 20,)),
                           (written[1], (3 << 20,))):
        wanted = np.zeros(4 << 20, int)
        for start in starts:
            wanted[start:start + size] = 1
        np.testing.assert_array_equal(counts, wanted)
    assert table.arrivals.tolist() == [0, 157] and len(table.groups) == 4 and table.persistent


def test_passes_beside_each_other_go_on_when_shorter_ones_have_ended():
    sizes, apart = (6400, 0, 640, 1000 * 64), 1 << 20
    passes = [Pass((place * apart,), place * apart, Route.PEER, peer=place, concurrent=place > 0, size_bytes=size)
              for place, size in enumerate(sizes)]
    table = Copy([passes], 0, 512, 1.0, 2.0).work(0)
    copied = [{}, {}]
    for _, _, loads, stores in walked(table):
        for seen, blocks in zip(copied, (loads, stores)):
            for address, size in (one for step in blocks for one in step):
                for line in range(address, address + size, 64):
                    seen[line] = seen.get(line, 0) + 1
    wanted = {place * apart + at: 1 for place, size in enumerate(sizes) for at in range(0, size, 64)}
    assert copied == [wanted, wanted] and not table.groups["phase"].any()


def small() -> KernelTable:
    return gemm(Tiling(100, 70, 64, 32, 4), 100).work(0)


def test_a_kernel_survives_its_file(tmp_path):
    table = replace(small(), ahead=3, end_cycles=7.5)
    table.save(tmp_path / "kernel.npz")
    again = load_kernel(tmp_path / "kernel.npz")
    for one in fields(KernelTable):
        np.testing.assert_array_equal(getattr(again, one.name), getattr(table, one.name))


def test_devices_tables_joined_are_the_same_work():
    tables = [small(), gemm(Tiling(64, 32, 64, 32, 4), 20).work(0)]
    one = KernelTable(*joined(tables))
    assert [entry[2:] for entry in walked(one)] == [entry[2:] for table in tables for entry in walked(table)]


@pytest.mark.parametrize("array, column, value, message", [
    ("groups", "workgroups", 0, r"groups\[0\]: workgroups=0 is not possible: 1 to"),
    ("groups", "steps", 99, r"groups\[0\]: first_step=0 and steps=99 end after the last of 18 steps"),
    ("groups", "phase", 1, r"groups\[0\]: phase=1 is not possible: 0 to 0"),
    ("steps", "compute_cycles", float("nan"), r"steps\[0\]: compute_cycles=nan is not possible"),
    ("steps", "first_load", 1000, r"steps\[0\]: first_load=1000 and loads=2 end after the last of"),
    ("loads", "bytes", 0, r"loads\[0\]: bytes=0 is not possible: 1 to"),
    ("loads", "row_list", 0, "a list of rows ends after the 0 entries of row_lists"),
    ("stores", "route", 5, r"stores\[0\]: route=5 is not possible: 0 to 4"),
    ("stores", "bytes", 5000, r"stores\[0\]: bytes=5000 is not possible: 1 to 4096"),
    ("stores", "base", 32, r"stores\[0\]: base=32 must be a multiple of 64"),
])
def test_what_cannot_be_run_is_refused_in_one_line(tmp_path, array, column, value, message):
    table = small()
    arrays = {one.name: getattr(table, one.name) for one in fields(KernelTable)}
    arrays[array] = arrays[array].copy()
    arrays[array][column][0] = value
    np.savez(tmp_path / "kernel.npz", **arrays)
    with pytest.raises(KernelError, match=message):
        load_kernel(tmp_path / "kernel.npz")


@pytest.mark.parametrize("change, message", [
    ({"groups": None}, "'groups' is missing"),
    ({"other": np.zeros(1)}, "'other' is unknown: allowed are"),
    ({"stores": np.zeros(3)}, "stores must be an array of one dimension with elements base, pitch"),
    ({"ahead": np.array([1, 2])}, "ahead must be one number"),
    ({"ahead": np.array(0)}, "ahead=0 is not possible: 1 to 64"),
    ({"arrivals": np.zeros(2, np.int64)}, "each of the 2 phases needs a group of workgroups"),
    ({"groups": np.zeros(0, GROUP)}, "groups is empty: a kernel needs a group of workgroups"),
])
def test_files_that_are_no_kernels_are_refused_in_one_line(tmp_path, change, message):
    arrays = {one.name: getattr(small(), one.name) for one in fields(KernelTable)} | change
    np.savez(tmp_path / "kernel.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(KernelError, match=message):
        load_kernel(tmp_path / "kernel.npz")
    (tmp_path / "kernel.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(KernelError, match="is not an .npz file"):
        load_kernel(tmp_path / "kernel.npz")


@pytest.mark.parametrize("columns", [{"base": 900}, {"step_stride": 100}, {"workgroup_stride": -101}, {"pitch": 200},
                                     {"row_list": 0, "pitch": 70}])
def test_blocks_outside_the_memory_are_refused(columns):
    """A memory of 1,024 bytes; twelve turns, two workgroups, three rows of 64 bytes."""
    def table(**changed) -> KernelTable:
        block = {"base": 100, "pitch": 64, "rows": 3, "bytes": 64, "step_stride": 60} | changed
        return KernelTable(rows_of(GROUP, 1, workgroups=2, steps=1), rows_of(STEP, 1, repeats=12, loads=1),
                           rows_of(LOAD, 1, **block), np.zeros(0, STORE), np.array([0, 2, 5]))
    check_memory(table(), 1024)
    with pytest.raises(KernelError, match=r"loads\[0\] reaches from byte"):
        check_memory(table(**columns), 1024)


@pytest.mark.parametrize("changed, message", [
    ({"waits": np.zeros(1, WAIT)}, "waits has 1 entries: none, or one for each of the 6 groups"),
    ({"waits": np.array([(1, 2)] * 6, WAIT), "signals": np.array([1])}, "waits: 2 to 2: the 1 signals are 1 to 1"),
    ({"raises": np.full(6, -1)}, "raises: -1 to -1: the 0 signals"),
    ({"adding": 7}, "adding=7 is not possible: 0 to the 6 groups"),
], ids=lambda value: str(value) if isinstance(value, str) else "")
def test_signals_that_there_are_not_are_refused_in_one_line(changed, message):
    with pytest.raises(KernelError, match=message):
        replace(gemm(Tiling(192, 64, 64, 32, 4), 32).work(0), **changed)
