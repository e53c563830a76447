"""A DLRM's hyperparameters, and what its operators take on one GPU."""

from dataclasses import dataclass
from math import gcd

from t3sim.analytic.gemm import accelerator_gemm_ns, accelerator_move_ns
from t3sim.machine.closed_form import Accelerator

_INDEX_BYTES = 8  #: PyTorch's int64


@dataclass(frozen=True)
class Dlrm:
    """A model with equal tables and equal MLP layers, as averages describe it."""

    embedding_dim: int
    pooling: int  #: rows of a table that one sample adds up
    mlp_layers: int
    mlp_width: int
    bottom_layers: int  #: of `mlp_layers`: those that need no embeddings
    tables_per_gpu: int
    local_batch: int  #: samples per GPU
    element_bytes: int = 4  #: fp32

    @property
    def mlp_bytes(self) -> int:
        """Weights and biases of one MLP layer."""
        return self.element_bytes * self.mlp_width * (self.mlp_width + 1)

    def pooled_bytes(self, gpus: int) -> int:
        """Return the bytes that one GPU pools for all GPUs: a vector per table and sample of the global batch."""
        return self.element_bytes * self.embedding_dim * self.tables_per_gpu * self.local_batch * gpus


#: The fused operators' scale-out study (table II: dimension, pooling, layers, width), which took them from model I of
#: Mudigere et al. (ISCA 2022, arXiv 2104.05158, table 3): hundreds of tables, 2,048 samples per GPU. The bottom MLP has
#: 4 of 7 layers in the DLRM that comes with ASTRA-sim (inputs/workload/ASTRA-sim-1.0/DLRM_HybridParallel.txt).
PAPER = Dlrm(embedding_dim=92, pooling=70, mlp_layers=43, mlp_width=682, bottom_layers=round(43 * 4 / 7),
             tables_per_gpu=2, local_batch=2048)


@dataclass(frozen=True)
class Operators:
    """Times of one pass on one GPU, ns."""

    pooling: float
    gradient_rows: float  #: a copy of the pooled vector's gradient for each row that was pooled
    update: float  #: of the rows, by these copies
    applied: float  #: instead of both: a kernel that applies gradients to the rows at once
    bottom_forward: float
    bottom_backward: float
    interaction_forward: float
    interaction_backward: float
    top_forward: float
    top_backward: float
    optimizer: float  #: of the MLPs


def operators(model: Dlrm, gpu: Accelerator, line_bytes: int, gpus: int) -> Operators:
    """Return the operators' times. What reads or writes rows is bound by memory, which moves whole lines of a row.

    Kernels are those of the public DLRM (facebookresearch/dlrm): `EmbeddingBag(sparse=True)`, whose backward pass
    writes a gradient row per index, and SGD, which adds these to the table.
    """
    bags, batch, width = model.tables_per_gpu * model.local_batch * gpus, model.local_batch, model.mlp_width
    row_bytes = model.embedding_dim * model.element_bytes
    # A row begins at any multiple of the alignment that its length leaves: lines that it touches, on average.
    fetched = row_bytes + line_bytes - gcd(row_bytes, line_bytes)
    layer_forward = (_gemm_ns(gpu, model, batch, width, width)
                     + accelerator_move_ns(gpu, 2 * model.element_bytes * batch * width))  # bias and ReLU
    layer_backward = (2 * _gemm_ns(gpu, model, batch, width, width)
                      + accelerator_move_ns(gpu, 3 * model.element_bytes * batch * width))
    vectors = model.tables_per_gpu * gpus + 1
    interaction = _gemm_ns(gpu, model, vectors, vectors, model.embedding_dim, batch)
    top_layers = model.mlp_layers - model.bottom_layers
    return Operators(
        pooling=accelerator_move_ns(gpu, bags * (model.pooling * (fetched + _INDEX_BYTES) + row_bytes)),
        gradient_rows=accelerator_move_ns(gpu, bags * (model.pooling * (row_bytes + _INDEX_BYTES) + row_bytes)),
        update=accelerator_move_ns(gpu, bags * model.pooling * (row_bytes + 2 * fetched + _INDEX_BYTES)),
        applied=accelerator_move_ns(gpu, bags * (model.pooling * (2 * fetched + _INDEX_BYTES) + row_bytes)),
        bottom_forward=model.bottom_layers * layer_forward, bottom_backward=model.bottom_layers * layer_backward,
        interaction_forward=interaction,
        interaction_backward=_gemm_ns(gpu, model, vectors, model.embedding_dim, vectors, batch),
        top_forward=top_layers * layer_forward, top_backward=top_layers * layer_backward,
        optimizer=accelerator_move_ns(gpu, 3 * model.mlp_layers * model.mlp_bytes))


def _gemm_ns(gpu: Accelerator, model: Dlrm, m: int, n: int, k: int, count: int = 1) -> float:
    return float(accelerator_gemm_ns(gpu, m, n, k, count, model.element_bytes))
