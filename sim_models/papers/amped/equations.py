"""AMPeD's equations (ISPASS 2023, section IV) as they are printed, one function each; and the case studies' machines.

`training.py` is the model to use. These functions exist to reproduce the paper's case studies, so they keep its
simplifications: one efficiency for all GEMMs, and the bubble of equation 8 with its factor 1/L, which makes the compute
part of a bubble L times too small (`bubble_s(..., printed=False)` is the physical form). Times in seconds.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Device:
    """An accelerator of table IV and its network."""

    frequency_hz: float
    cores: int
    units_per_core: int  #: N_FU
    unit_width: int  #: W_FU: MACs of `unit_bits` operands per unit and cycle
    nonlinear_units: int
    nonlinear_width: int
    intra_bytes_per_s: float
    inter_bytes_per_s: float
    unit_bits: int = 8  #: S_FU: what makes table IV's A100 one of 312 TFLOP/s with 16-bit operands
    latency_s: float = 0.0  #: C_intra and C_inter; the paper gives none


A100 = Device(1.41e9, 108, 4, 512, 192, 4, 300e9, 25e9)  #: HDR InfiniBand, one 200 Gb/s card per accelerator
H100 = Device(1.8e9, 132, 4, 1024, 320, 4, 450e9, 50e9)  #: NDR, 400 Gb/s


@dataclass(frozen=True)
class AmpedNetwork:
    """A Transformer as the equations see it.

    `expert_layers` of its layers have `experts`, of which a token uses two (GLaM); their weights are not replicated
    within a group of `experts` replicas.
    """

    hidden: int
    layers: int
    heads: int
    sequence: int
    vocabulary: int
    feed_forward: int
    expert_layers: int = 0
    experts: int = 1

    @property
    def dense_weights(self) -> int:
        """Weights of all layers, each expert layer with one network."""
        return self.layers * (4 * self.hidden**2 + 2 * self.hidden * self.feed_forward)


MEGATRON_145B = AmpedNetwork(12288, 80, 96, 2048, 51200, 4 * 12288)
#: GLaM 64B/64E (arXiv 2112.06905, table 4): every other layer has 64 experts, two per token.
GLAM = AmpedNetwork(8192, 64, 128, 1024, 256000, 32768, expert_layers=32, experts=64)


@dataclass(frozen=True)
class Degrees:
    """Degrees of parallelism within and between nodes."""

    tp_intra: int = 1
    tp_inter: int = 1
    pp_intra: int = 1
    pp_inter: int = 1
    dp_intra: int = 1
    dp_inter: int = 1

    @property
    def tp(self):
        return self.tp_intra * self.tp_inter

    @property
    def pp(self):
        return self.pp_intra * self.pp_inter

    @property
    def dp(self):
        return self.dp_intra * self.dp_inter

    @property
    def gpus(self):
        return self.tp * self.pp * self.dp


@dataclass(frozen=True)
class Assumptions:
    """Assumptions where the paper leaves something open."""

    efficiency_half: float = 32.0  #: eff(ub) = ub/(half + ub): section VI's 31 % and 80 % follow from it
    efficiency_floor: float = 0.25  #: section VI-D
    operand_bits: int = 16
    gradient_bits: int = 16
    backward: float = 3.0  #: of the forward compute: two GEMMs and the recomputation
    zero_overhead: float = 0.0  #: M_f,DP of equation 5: what ZeRO adds to the communication, relative to it


@dataclass(frozen=True)
class Batch:
    """Seconds of one batch, by cause."""

    compute: float
    nonlinear: float
    tensor: float
    pipeline: float
    experts: float
    gradients: float
    bubble: float
    update: float

    @property
    def total(self) -> float:
        return sum(vars(self).values())


def efficiency(assumptions: Assumptions, micro_batch):
    """Return eff(ub) of equation 3."""
    return max(assumptions.efficiency_floor, micro_batch / (assumptions.efficiency_half + micro_batch))


def mac_s(device: Device, eff):
    """Return C_MAC, the time per MAC (equation 3)."""
    return 1 / (device.frequency_hz * device.cores * device.units_per_core * device.unit_width * eff)


def nonlinear_s(device: Device) -> float:
    """Return C_nonlin, the time per non-linear operation (equation 4)."""
    return 1 / (device.frequency_hz * device.nonlinear_units * device.nonlinear_width)


def forward_s(device: Device, net: AmpedNetwork, assumptions: Assumptions, sequences, eff) -> tuple:
    """Return U_f of all layers (equation 2): time of the MACs, time of what is not linear; on one accelerator."""
    tokens = sequences * net.sequence
    macs = tokens * (net.dense_weights + net.expert_layers * 2 * net.hidden * net.feed_forward
                     + net.layers * 2 * net.sequence * net.hidden + net.vocabulary * net.hidden)
    passes = -(-assumptions.operand_bits // device.unit_bits)
    nonlinear = net.layers * tokens * (net.heads * net.sequence + net.feed_forward + 2 * net.hidden)
    return macs * mac_s(device, eff) * passes, nonlinear * nonlinear_s(device)


def ring_factor(ranks):
    """Return the topology factor T of an all-reduce on a ring (section IV-B)."""
    return 2 * (ranks - 1) / ranks


def _two_levels_s(device: Device, size: float, intra: int, inter: int) -> float:
    """Return the time of all-reduces of `size` bytes between so many within a node, and between nodes."""
    return sum(ring_factor(ranks) * (device.latency_s * ranks + size / bandwidth) for ranks, bandwidth in (
        (intra, device.intra_bytes_per_s), (inter, device.inter_bytes_per_s)) if ranks > 1)


def tensor_s(device: Device, net: AmpedNetwork, assumptions: Assumptions, degrees: Degrees, sequences):
    """Return M_TP of one layer, forward: within the nodes and between them (equation 6)."""
    size = 2 * sequences * net.sequence * net.hidden * assumptions.operand_bits / 8
    return _two_levels_s(device, size, degrees.tp_intra, degrees.tp_inter)


def pipeline_s(device: Device, net: AmpedNetwork, assumptions: Assumptions, degrees: Degrees, sequences):
    """Return M_PP of one layer, forward: the slower of the two levels (equation 7)."""
    size = sequences * net.sequence * net.hidden * assumptions.operand_bits / 8
    return max((device.latency_s + size / bandwidth) / net.layers if ranks > 1 else 0.0 for ranks, bandwidth in (
        (degrees.pp_intra, device.intra_bytes_per_s), (degrees.pp_inter, device.inter_bytes_per_s)))


def experts_s(device: Device, net: AmpedNetwork, assumptions: Assumptions, nodes, sequences):
    """Return M_MoE of one layer with experts, forward: two all-to-alls (equation 9)."""
    if not net.expert_layers:
        return 0.0
    factor = (nodes - 1) / nodes
    size = sequences * net.sequence * net.hidden * assumptions.operand_bits / 8
    return 2 * device.latency_s * factor * nodes + 2 * size * factor * (
        1 / (nodes * device.intra_bytes_per_s) + factor / device.inter_bytes_per_s)


def communication_s(assumptions: Assumptions, tensor, experts, pipeline):
    """Return M_f of one layer (equation 5), of what equations 6, 9 and 7 give."""
    return (1 + assumptions.zero_overhead) * (tensor + experts + pipeline)


def gradients_s(device: Device, net: AmpedNetwork, assumptions: Assumptions, degrees: Degrees):
    """Return M_g of all layers: within the nodes, then between them (equations 10 and 11)."""
    size = net.dense_weights / (degrees.tp * degrees.pp) * assumptions.gradient_bits / 8
    return _two_levels_s(device, size, degrees.dp_intra, degrees.dp_inter)


def update_s(device: Device, net: AmpedNetwork, eff):
    """Return U_w of all layers, on one accelerator: a MAC per weight (equation 12)."""
    return net.dense_weights * mac_s(device, eff)


def bubble_s(net: AmpedNetwork, degrees: Degrees, micro_batches, compute, communication, overlap: float = 1.0,
             printed: bool = True):
    """Return W of all layers (equation 8): `compute` and `communication` of one accelerator and batch, both passes.

    As printed, the compute of a step is divided by the number of layers once more.
    """
    return overlap * (degrees.pp - 1) / micro_batches * (compute / (net.layers if printed else 1) + communication)


def batch_time(device: Device, net: AmpedNetwork, degrees: Degrees, global_batch,
               assumptions: Assumptions = Assumptions(), printed: bool = True) -> Batch:
    """Return equation 1 for one batch. A micro-batch is B/(DP x PP), and there are as many as pipeline stages."""
    micro = global_batch / (degrees.dp * degrees.pp)
    eff = efficiency(assumptions, micro)
    macs, nonlinear = forward_s(device, net, assumptions, global_batch, eff)
    compute = (1 + assumptions.backward) * macs / degrees.gpus
    nonlinear = (1 + assumptions.backward) * nonlinear / degrees.gpus
    nodes = degrees.tp_inter * degrees.pp_inter * degrees.dp_inter
    tensor = 2 * net.layers * communication_s(assumptions, tensor_s(device, net, assumptions, degrees, micro), 0.0, 0.0)
    pipeline = 2 * net.layers * communication_s(
        assumptions, 0.0, 0.0, pipeline_s(device, net, assumptions, degrees, micro))
    experts = 2 * net.expert_layers * communication_s(
        assumptions, 0.0, experts_s(device, net, assumptions, nodes, micro), 0.0)
    return Batch(
        compute, nonlinear, tensor, pipeline, experts, gradients_s(device, net, assumptions, degrees),
        bubble_s(net, degrees, degrees.pp, compute + nonlinear, tensor + pipeline + experts, printed=printed),
        update_s(device, net, eff) / degrees.gpus)


def training_days(device: Device, net: AmpedNetwork, degrees: Degrees, global_batch, tokens: float = 300e9,
                  assumptions: Assumptions = Assumptions(), printed: bool = True):
    """Return the days that `tokens` take."""
    batches = tokens / (global_batch * net.sequence)
    return batches * batch_time(device, net, degrees, global_batch, assumptions, printed).total / 86400


def gpipe_speedup(stages: np.ndarray, micro_batches: int, compute_s: float, boundary_bytes: float,
                  bytes_per_s: float) -> np.ndarray:
    """Return the throughput of a pipeline over that of its first entry (table III).

    All boundaries' messages, forward and backward, share one bus, that of the host between the accelerators.
    """
    bus = 2 * (stages - 1) * boundary_bytes / bytes_per_s
    times = compute_s / stages * (1 + (stages - 1) / micro_batches) + bus
    return times[0] / times
