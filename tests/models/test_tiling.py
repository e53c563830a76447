"""Cutting a GEMM: chunks partition the tiles, neighbours agree on who computes what when, windows fit."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sim_models.machine import load_machine
from sim_models.simulation import make_tiling
from sim_models.tiling import DMA, EVENT, REMOTE, Tiling, TilingError, slices_needed
from sim_models.workloads import paper_workloads


@st.composite
def tilings(draw) -> Tiling:
    wavefronts = draw(st.sampled_from([1, 2, 4, 8]))
    shape = {"m": draw(st.integers(1, 1500)), "n": draw(st.integers(1, 1500)), "devices": draw(st.integers(2, 9)),
             "tile_m": draw(st.sampled_from([32, 64, 128, 256])), "wavefronts": wavefronts,
             "tile_n": wavefronts * draw(st.integers(1, 16)), "slices": draw(st.integers(1, 4))}
    tiles = -(-shape["m"] // shape["tile_m"]) * -(-shape["n"] // shape["tile_n"])
    assume(shape["devices"] * shape["slices"] <= tiles <= 2000)
    return Tiling(**shape)


def paper_tilings() -> list[Tiling]:
    machine = load_machine()
    return list({(w.m, w.n, w.tp): make_tiling(machine, w) for w in paper_workloads()}.values())


def one_line(error: pytest.ExceptionInfo) -> str:
    message = str(error.value)
    assert message and "\n" not in message and len(message) < 300
    return message


def check_chunks(tiling: Tiling) -> None:
    """Chunks partition the tiles, every chunk has some, and its edges are nearest to the ideal ones."""
    seen = [tile for s in range(tiling.slices) for c in range(tiling.devices) for tile in tiling.chunk(s, c)]
    assert seen == list(range(tiling.tiles))
    assert all(len(tiling.chunk(s, c)) for s in range(tiling.slices) for c in range(tiling.devices))
    elements = tiling.rows * tiling.columns
    assert elements.sum() == tiling.m * tiling.n
    parts = tiling.slices * tiling.devices
    ideal = tiling.m * tiling.n / parts
    if ideal >= 2 * elements.max():  # else whole tiles cannot come near
        behind = np.concatenate([[0], np.cumsum(elements)])[tiling.boundaries]
        assert np.abs(behind - ideal * np.arange(parts + 1)).max() <= elements.max() / 2 + 1e-6


def check_neighbours(tiling: Tiling) -> None:
    """What device d computes as its workgroup q, device d-1 computes as q + wg_offset, one ring position later."""
    orders = [tiling.order(device) for device in range(tiling.devices)]
    ends = np.zeros(tiling.tiles, int)
    starts = np.zeros(tiling.tiles, int)
    for device, (tiles, positions, slices) in enumerate(orders):
        np.testing.assert_array_equal(np.sort(tiles), np.arange(tiling.tiles))
        assert (np.diff(slices * tiling.devices + positions) >= 0).all()
        neighbour_tiles, neighbour_positions, neighbour_slices = orders[device - 1]
        offsets = np.array([tiling.wg_offset(device, s) for s in range(tiling.slices)])
        assert offsets.max() == tiling.max_wg_offset(device)
        sent = np.flatnonzero(positions < tiling.devices - 1)
        there = sent + offsets[slices[sent]]
        np.testing.assert_array_equal(neighbour_tiles[there], tiles[sent])
        np.testing.assert_array_equal(neighbour_positions[there], positions[sent] + 1)
        np.testing.assert_array_equal(neighbour_slices[there], slices[sent])
        kinds = np.array([tiling.kind(int(p)) for p in positions])
        starts[tiles[kinds == REMOTE]] += 1
        ends[tiles[kinds == EVENT]] += 1
        assert set(kinds[(positions > 0) & (positions < tiling.devices - 1)]) <= {DMA}
        for s in range(tiling.slices):  # a device ends with its own chunk
            assert set(tiles[(kinds == EVENT) & (slices == s)]) == set(tiling.chunk(s, device))
    assert (starts == 1).all() and (ends == 1).all()


def check_wavefronts(tiling: Tiling) -> None:
    for tile in range(0, tiling.tiles, max(1, tiling.tiles // 50)):
        columns = [tiling.wf_tile_columns(tile, wf) for wf in range(tiling.wavefronts)]
        assert sum(columns) == tiling.columns[tile] and max(columns) <= tiling.wf_columns
        used = [wf for wf, width in enumerate(columns) if width]
        assert used == list(range(tiling.wf_tiles(tile)))
    assert tiling.pitch_bytes % 64 == 0
    assert tiling.m * tiling.element_bytes <= tiling.pitch_bytes < tiling.m * tiling.element_bytes + 64
    assert tiling.output_bytes == tiling.pitch_bytes * tiling.n


@settings(max_examples=150, deadline=None)
@given(tilings())
def test_any_tiling(tiling):
    check_chunks(tiling)
    check_neighbours(tiling)
    check_wavefronts(tiling)


@pytest.mark.parametrize("tiling", paper_tilings(), ids=lambda t: f"{t.m}x{t.n}-tp{t.devices}")
def test_the_papers_tilings(tiling):
    check_chunks(tiling)
    check_neighbours(tiling)
    check_wavefronts(tiling)
    # Whatever device: the hardware takes a shift only below its window, T3's 256 sets of 8 ways.
    assert max(tiling.max_wg_offset(device) for device in range(tiling.devices)) < 256
    # Chunks differ by raggedness alone.
    elements = [sum(int(tiling.rows[t] * tiling.columns[t]) for t in tiling.chunk(s, c))
                for s in range(tiling.slices) for c in range(tiling.devices)]
    assert max(elements) - min(elements) <= 128 * 128


def test_mega_gpt_2_needs_slices_and_t_nlg_does_not():
    """On 8 devices a chunk has 192 and 136 workgroups; beside one and a half stages the Tracker's 256 sets hold 136."""
    slices = {(t.m, t.n, t.devices): t.slices for t in paper_tilings()}
    assert slices[3072, 16384, 8] == 2 and slices[4256, 8192, 8] == 1


@settings(max_examples=100, deadline=None)
@given(m=st.integers(1, 9000), n=st.integers(1, 9000), devices=st.integers(2, 16), window=st.integers(1, 600),
       concurrent=st.integers(1, 160))
def test_slices_are_the_fewest_that_fit(m, n, devices, window, concurrent):
    assume(-(-m // 128) * -(-n // 128) >= devices)
    room = window - concurrent - concurrent // 2
    if room < 1:
        room = max(1, window // 2)
    slices = slices_needed(m, n, devices, 128, 128, 8, window, concurrent)
    cut = Tiling(m, n, devices, slices=slices)
    finest = cut.tiles < 2 * devices * (slices + 1)

    def fits(tiling):
        return (tiling.max_wg_offset(0) <= room
                and max(tiling.max_wg_offset(device) for device in range(devices)) < window)
    assert fits(cut) or finest
    if slices > 1:
        assert not fits(Tiling(m, n, devices, slices=slices - 1))


@pytest.mark.parametrize("change, words", [
    ({"m": 0}, "m=0"), ({"n": -1}, "n=-1"), ({"tile_m": 0}, "tile_m=0"), ({"tile_n": 0}, "tile_n=0"),
    ({"wavefronts": 0}, "wavefronts=0"), ({"slices": 0}, "slices=0"),
    ({"devices": 1}, "devices=1 must be at least 2"), ({"devices": 0}, "devices=0"),
    ({"tile_n": 100}, "tile_n=100 must be a multiple of wavefronts=8"),
    ({"tile_m": 48}, "tile_m=48 must make columns of whole 64-byte lines"),
    ({"m": 128, "n": 128}, "an output of 1 tiles of 128x128 is too small: devices=4 chunks"),
    ({"slices": 33}, "an output of 128 tiles"),
])
def test_impossible_values_are_refused_in_one_line(change, words):
    with pytest.raises(TilingError) as error:
        Tiling(**{"m": 2048, "n": 1024, "devices": 4, **change})
    assert words in one_line(error)


def test_the_smallest_ring_and_single_tile_chunks():
    tiling = Tiling(128, 256, 2)
    assert [list(tiling.chunk(0, c)) for c in range(2)] == [[0], [1]]
    assert tiling.order(0)[0].tolist() == [1, 0] and tiling.order(1)[0].tolist() == [0, 1]
    assert [tiling.kind(p) for p in range(2)] == [REMOTE, EVENT]
