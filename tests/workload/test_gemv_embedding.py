"""A matrix times a vector and pooling of embeddings as kernel tables: what they load and store, byte by byte."""

import numpy as np
import pytest

from t3sim.workload.operators.embedding import INDEX_BYTES, Embedding, embedding_tiling
from t3sim.workload.operators.gemm import Matrix
from t3sim.workload.operators.gemv import Gemv, gemv_tiling
from t3sim.workload.operators.kernel_table import STRIDED, KernelTable
from t3sim.workload.operators.tiling import TilingError

pytestmark = pytest.mark.builds_loops


def rows_loaded(table: KernelTable, group: int) -> list[list[tuple[int, int]]]:
    """Each step's rows as (first byte, bytes), in order, repeats one after the other."""
    found = []
    first, count = table.groups["first_step"][group], table.groups["steps"][group]
    for step in table.steps[first:first + count]:
        for turn in range(step["repeats"]):
            found.append([])
            for block in table.loads[step["first_load"]:step["first_load"] + step["loads"]]:
                rows = np.arange(block["rows"])
                if block["row_list"] != STRIDED:
                    rows = table.row_lists[block["row_list"] + rows]
                found[-1] += [(int(block["base"] + row * block["pitch"] + turn * block["step_stride"]),
                               int(block["bytes"])) for row in rows]
    return found


def gemv(rows: int, k: int) -> Gemv:
    return Gemv(gemv_tiling(rows, 2), k, Matrix(1 << 20, -(-2 * k // 256) * 256), 0, 1 << 28, 1.0, 100.0, 50.0, 8)


@pytest.mark.parametrize("rows, k", [(256, 512), (100, 200), (33, 1)])
def test_a_gemv_loads_its_matrix_once_and_the_vector_for_each_workgroup(rows, k):
    operator = gemv(rows, k)
    table = operator.work(0)
    covered = np.zeros((rows, 2 * k), int)
    for group in range(len(table.groups)):
        vector = np.zeros(2 * k, int)
        for step in rows_loaded(table, group):
            for at, size in step:
                row, byte = divmod(at - operator.matrix.base, operator.matrix.pitch)
                if at < operator.matrix.base:
                    vector[at:at + size] += 1
                else:
                    covered[row, byte:byte + size] += 1
        assert (vector == 1).all()
    assert (covered == 1).all()
    assert table.bytes_stored() == 2 * rows and len(table.stores) == -(-rows // 32)
    cycles = table.steps["repeats"] * table.steps["compute_cycles"]
    assert cycles.sum() == len(table.groups) * (k + 50.0)


def pooling(bags: int = 64, tables: int = 4, pooled: int = 10, rows: int = 100, weights=None, **others) -> Embedding:
    return Embedding(embedding_tiling(bags, 256, 8, 4), tables, pooled, np.ones(rows) if weights is None else weights,
                     **{"tables_base": 0, "lists_base": 1 << 28, "output_base": 1 << 29, "rows_at_once": 4,
                        "cycles_per_row": 2.0, "launch_cycles": 10.0, "registers": 56, "seed": 0} | others)


def test_a_bag_loads_its_list_and_then_the_rows_that_it_names():
    operator = pooling()
    table, named = operator.work(0), operator.rows_named()
    for group in range(len(table.groups)):
        lists, *steps = rows_loaded(table, group)
        assert lists == [((1 << 28) + group * 8 * 10 * INDEX_BYTES, 8 * 10 * INDEX_BYTES)]
        assert list(map(len, steps)) == [32, 32, 16], "of each wavefront four rows, four, and the two that are left"
        bags = named[group * 8:group * 8 + 8]
        assert sorted(at // 1024 for step in steps for at, _ in step) == sorted(bags.ravel())
        assert {size for step in steps for _, size in step} == {1024}
        assert [at // 1024 for at, _ in steps[0]] == bags[:, :4].ravel().tolist()
    assert table.bytes_stored() == 64 * 1024
    assert (np.sort(table.stores["base"]) - (1 << 29) == np.arange(64) * 1024).all()
    assert (table.steps["compute_cycles"].reshape(8, 4) == [0, 8, 8, 4]).all()


def test_rows_are_of_the_bags_own_table_and_as_frequent_as_their_weights():
    weights = np.array([8.0, 4.0, 2.0, 1.0, 1.0])
    named = pooling(bags=8000, weights=weights, rows=5).rows_named()
    table, row = np.divmod(named, 5)
    assert (table == np.arange(8000)[:, None] % 4).all()
    assert np.bincount(row.ravel()) / row.size == pytest.approx(weights / 16, abs=0.01)
    assert (pooling().rows_named() == pooling().rows_named()).all(), "the same seed, the same rows"
    assert (pooling().rows_named() != pooling(seed=1).rows_named()).any()


def test_bags_that_do_not_fill_workgroups_are_refused():
    with pytest.raises(TilingError, match="49 bags are not a multiple of the 8"):
        embedding_tiling(49, 256, 8, 4)
