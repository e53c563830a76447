"""Medium-grained overlap: a GEMM cut into one GEMM per chunk of its reduce-scatter, each a kernel of its own.

The GEMMs run one after the other in the order in which the ring sends the chunks. When one has ended, a kernel on other
compute units adds what came for its chunk and stores the sum at the neighbour; the next GEMM runs meanwhile. That a
split GEMM is slower (launches, a last wave for each, units that communication has) follows from the tables.
Sources: Flux (arXiv 2406.06858), section 2.2 and figure 3; TransformerEngine 1.x, which it compares with: a chunk's
reduce-scatter is a kernel on 16 multiprocessors (`num_sm=16` in transformer_engine/pytorch/module/base.py), and GEMMs
of a reduce-scatter do not run side by side. There the chunks are scattered by a kernel that pulls; the ring of the
baseline's kernels is taken here, so that baseline and decomposition differ in nothing else.
"""

from collections.abc import Sequence
from dataclasses import replace

from t3sim.base.errors import BadInput, Key
from t3sim.workload.operators.gemm import Gemm, Matrix
from t3sim.workload.operators.in_turn import in_turn
from t3sim.workload.operators.kernel_table import KernelTable

COMMUNICATION_UNITS = 16  #: TransformerEngine's


def units_left(compute_units: int, communication_units: int) -> int:
    """Count the compute units that communication leaves to the GEMM. Raises BadInput."""
    if not 1 <= communication_units < compute_units:
        raise BadInput(Key("decomposed.communication_units", communication_units),
                       f" of {compute_units} compute units is not possible: 1 to {compute_units - 1}")
    return compute_units - communication_units


def split_gemm(gemm: Gemm, order: Sequence[int], launch_cycles: float) -> KernelTable:
    """Build the GEMMs of as many chunks of columns (tokens) as `order` names, in that order.

    Each is launched when the one before has ended. Raises BadInput for fewer columns than chunks.
    """
    columns, chunks = gemm.tiling.n, len(order)
    if columns < chunks:
        raise BadInput(f"M = {columns} cannot be split into {chunks} GEMMs: a row each is needed")
    edges = [columns * chunk // chunks for chunk in range(chunks + 1)]
    return in_turn([_columns(gemm, edges[chunk], edges[chunk + 1]).work(0) for chunk in order], launch_cycles)


def _columns(gemm: Gemm, first: int, end: int) -> Gemm:
    """Return the GEMM of some of the columns."""
    return replace(gemm, tiling=replace(gemm.tiling, n=end - first),
                   b=Matrix(gemm.b.base + first * gemm.b.pitch, gemm.b.pitch),
                   c_base=gemm.c_base + first * gemm.tiling.pitch_bytes)
