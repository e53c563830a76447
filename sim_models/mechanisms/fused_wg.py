"""Persistent workgroups that send what they compute: an all-to-all inside the kernel that makes its data.

The operator's kernel, but for four things: its workgroups draw their tasks themselves, those for other GPUs first; what
belongs to another GPU is stored there, without a copy here; after its stores a workgroup sets its bit in the mask of
its slice, an atomic in the last-level cache; and code that sends takes registers, so that fewer workgroups are
resident. It is over when everything has come that others send.
Source: Optimizing Distributed ML Communication with Fused Computation-Collective Operations, section III.
"""

from dataclasses import replace

from ..operators.embedding import Embedding
from ..operators.gemm import Gemm
from ..operators.kernel_table import KernelTable
from .flux import FluxOptions, Owners, storing_gemm

#: That calls of a library for communication add to a lane's: eight more than 64 leave seven of eight wavefronts.
SENDING_REGISTERS = 8


def sending_kernel(operator: Gemm | Embedding, owners: Owners, mask_cycles: float) -> KernelTable:
    """Build the kernel of one GPU that stands for all; `mask_cycles`: of the atomic after a workgroup's stores."""
    table = storing_gemm(operator, owners, 0, FluxOptions())
    registers = table.registers + SENDING_REGISTERS if table.wavefronts else table.registers
    return replace(table, persistent=True, end_cycles=mask_cycles, registers=registers)
