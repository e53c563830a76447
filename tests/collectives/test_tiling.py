"""Cutting a GEMM's output: parts partition the tiles and are balanced, wavefront tiles fill them."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from t3sim.machine import load_machine
from t3sim.papers.figure import variant
from t3sim.runs.build import make_tiling
from t3sim.workload.operators.tiling import Tiling, TilingError
from t3sim.workload.workloads import gemm_workload, paper_workloads


@st.composite
def tilings(draw) -> Tiling:
    wavefronts = draw(st.sampled_from([1, 2, 4, 8]))
    tiling = Tiling(draw(st.integers(1, 1500)), draw(st.integers(1, 1500)), draw(st.sampled_from([32, 64, 128, 256])),
                    wavefronts * draw(st.integers(1, 16)), wavefronts, along_n=draw(st.booleans()),
                    abreast=draw(st.integers(1, 5)))
    assume(tiling.tiles <= 2000)
    return tiling


def check_cut(tiling: Tiling, parts: int) -> None:
    """Parts partition the tiles, each has some if there are enough, and their edges are nearest to the ideal ones."""
    edges = tiling.cut(parts)
    assert edges[0] == 0 and edges[-1] == tiling.tiles
    assert (np.diff(edges) >= (tiling.tiles >= parts)).all()
    elements = tiling.rows * tiling.columns
    assert elements.sum() == tiling.m * tiling.n
    ideal = tiling.m * tiling.n / parts
    if ideal >= 2 * elements.max():  # else whole tiles cannot come near
        before = np.concatenate([[0], np.cumsum(elements)])[edges]
        assert np.abs(before - ideal * np.arange(parts + 1)).max() <= elements.max() / 2 + 1e-6


def check_wavefronts(tiling: Tiling) -> None:
    assert (tiling.wf_widths.sum(axis=1) == tiling.columns).all() and tiling.wf_widths.max() <= tiling.wf_columns
    assert (np.diff(tiling.wf_widths, axis=1) <= 0).all(), "the first wavefronts of a tile have its columns"
    assert ((tiling.wf_widths > 0).sum(axis=1) == tiling.wf_tiles).all()
    assert tiling.pitch_bytes % 64 == 0
    assert tiling.m * tiling.element_bytes <= tiling.pitch_bytes < tiling.m * tiling.element_bytes + 64
    assert tiling.output_bytes == tiling.pitch_bytes * tiling.n


@settings(max_examples=150, deadline=None)
@given(tilings(), st.integers(1, 40))
def test_any_tiling(tiling, parts):
    check_cut(tiling, parts)
    check_wavefronts(tiling)
    assert (tiling.at(tiling.first_row, tiling.first_column) == np.arange(tiling.tiles)).all()


@pytest.mark.parametrize("workload", {(w.m, w.n, w.tp): w for w in paper_workloads()}.values(), ids=lambda w: w.title)
def test_the_papers_tilings(workload):
    tiling = make_tiling(load_machine(), workload)
    check_cut(tiling, workload.tp)
    check_wavefronts(tiling)
    elements = np.add.reduceat(tiling.rows * tiling.columns, tiling.cut(workload.tp)[:-1])
    assert elements.max() - elements.min() <= tiling.tile_m * tiling.tile_n, "chunks differ by raggedness alone"


@pytest.mark.parametrize("abreast", [1, 2, 3, 9])
@pytest.mark.parametrize("along_n", [False, True])
def test_every_element_is_in_one_tile(along_n, abreast):
    tiling = Tiling(300, 200, 128, 64, 4, along_n=along_n, abreast=abreast)
    seen = np.zeros((200, tiling.pitch_bytes // 2), int)
    for tile in range(tiling.tiles):
        m0, n0 = tiling.first_row[tile], tiling.first_column[tile]
        assert tiling.offsets[tile] == (n0 * tiling.pitch_bytes // 2 + m0) * 2
        seen[n0:n0 + tiling.columns[tile], m0:m0 + tiling.rows[tile]] += 1
    assert (seen[:, :300] == 1).all() and not seen[:, 300:].any()


def test_consecutive_tiles_lie_along_the_extent_that_the_machine_names():
    """Hidden is m to the BLAS library, tokens n: three tiles by four."""
    machine, workload = load_machine(), gemm_workload("1024x384x64", 2)
    hidden = make_tiling(machine, workload)
    assert hidden.first_row.tolist() == [0, 128, 256] * 4
    assert hidden.first_column.tolist() == [0] * 3 + [256] * 3 + [512] * 3 + [768] * 3
    tokens = make_tiling(variant(machine, {"gpu.workgroup_order": "tokens"}), workload)
    assert tokens.first_row.tolist() == [0] * 4 + [128] * 4 + [256] * 4
    assert tokens.first_column.tolist() == [0, 256, 512, 768] * 3
    pairs = make_tiling(variant(machine, {"gpu.workgroup_order": "tokens", "gpu.swizzle": 2}), workload)
    assert pairs.first_row.tolist() == [0, 128] * 4 + [256] * 4
    assert pairs.first_column.tolist() == [0, 0, 256, 256, 512, 512, 768, 768, 0, 256, 512, 768]


@pytest.mark.parametrize(("shape", "tile", "rows", "columns"), [
    # Hidden is m: three tiles by two, so pairs of rows go along tokens, and the last row alone
    ("512x384x64", (128, 256), [0, 1, 0, 1, 2, 2], [0, 0, 1, 1, 0, 1]),
    # Two by three: along hidden, where pairs are already
    ("768x256x64", (128, 256), [0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 2, 2]),
    # Three by four to CUTLASS, which counts whole pairs: as many, so along tokens
    ("1024x384x64", (128, 256), [0, 1] * 4 + [2] * 4, [0, 0, 1, 1, 2, 2, 3, 3, 0, 1, 2, 3]),
    # A tile that is higher than wide has its pairs along tokens: two by three goes along hidden
    ("384x512x64", (256, 128), [0, 0, 1, 1, 0, 1], [0, 1, 0, 1, 2, 2]),
    ("256x768x64", (256, 128), [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]),
])
def test_clusters_go_along_the_shorter_extent_one_after_the_other(shape, tile, rows, columns):
    described = variant(load_machine(), {"gpu.workgroup_order": "shorter", "gpu.cluster": 2, "gpu.tile_m": tile[0],
                                         "gpu.tile_n": tile[1]})
    made = make_tiling(described, gemm_workload(shape, 2))
    assert (made.first_row // tile[0]).tolist() == rows
    assert (made.first_column // tile[1]).tolist() == columns


@pytest.mark.parametrize("change, words", [
    ({"m": 0}, "m=0"), ({"n": -1}, "n=-1"), ({"tile_m": 0}, "tile_m=0"), ({"tile_n": 0}, "tile_n=0"),
    ({"wavefronts": 0}, "wavefronts=0"), ({"abreast": 0}, "abreast=0 must be at least 1"),
    ({"tile_n": 100}, "tile_n=100 must be a multiple of wavefronts=8"),
    ({"tile_m": 48}, "tile_m=48 must make columns of whole 64-byte lines"),
])
def test_impossible_values_are_refused_in_one_line(change, words):
    with pytest.raises(TilingError) as error:
        Tiling(**{"m": 2048, "n": 1024, **change})
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("tiles", [1, 2, 3, 7])
def test_fewer_tiles_than_parts_leave_some_empty(tiles):
    """No part gets two, and those that get one lie apart."""
    lengths = np.diff(Tiling(128 * tiles, 100).cut(8))
    assert lengths.max() == 1 and lengths.sum() == tiles
    assert np.diff(np.flatnonzero(lengths)).min(initial=8) >= 8 // tiles
