"""A tiling whose columns of tiles have their own places and widths, some none."""

from dataclasses import replace

import numpy as np
import pytest

from t3sim.workload.operators.tiling import TilingError
from t3sim.workload.operators.uneven_tiling import UnevenTiling

TILING = UnevenTiling(64, 12, 32, 8, 4, starts=(5, 0, 9, 8), widths=(3, 5, 3, 0))


def test_each_column_of_tiles_is_where_it_is_said_to_be():
    assert (TILING.tile_columns, TILING.tile_rows, TILING.tiles, TILING.wf_columns) == (4, 2, 8, 2)
    np.testing.assert_array_equal(TILING.first_column, np.repeat((5, 0, 9, 8), 2))
    np.testing.assert_array_equal(TILING.columns, np.repeat((3, 5, 3, 0), 2))
    np.testing.assert_array_equal(TILING.offsets[:4], [5 * 128, 5 * 128 + 64, 0, 64])
    np.testing.assert_array_equal(TILING.wf_widths[[0, 2, 6]], [[2, 1, 0, 0], [2, 2, 1, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(TILING.column_of_tiles, [1] * 5 + [0] * 3 + [-1] + [2] * 3)
    np.testing.assert_array_equal(TILING.at(np.array([0, 40]), np.array([6, 2])), [0, 3])


def test_it_is_cut_between_its_columns_of_tiles():
    np.testing.assert_array_equal(TILING.cut(4), [0, 2, 4, 6, 8])
    with pytest.raises(TilingError, match="3 parts: 4 columns of tiles are one each"):
        TILING.cut(3)


@pytest.mark.parametrize("widths", [(3, 9, 3, 0), (3, -1, 3, 0), (3, 5, 3)])
def test_widths_are_those_of_tiles(widths):
    with pytest.raises(TilingError, match="each of 4 columns of tiles needs 0 to 8"):
        replace(TILING, widths=widths)
