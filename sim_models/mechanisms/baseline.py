"""Kernels on compute units: a ring collective as passes of a copy or reduce kernel, step by step.

As in the T3 paper's figures 3 and 10: in a step every device reads the chunk that the schedule has it send, the link
carries it, and what arrives is written to memory; the next step starts when this one's data have arrived.
Reduce-scatter without near-memory compute reads two copies per step from the second on and needs a last pass (two
reads, one write). With it, arriving data are op-and-store updates and one read per step suffices (figure 10b).
"""

from typing import NamedTuple

import numpy as np

from ..collectives import Program
from ..line import LINE_BYTES, lines_of
from ..operators.copy import Pass
from ..operators.kernel_table import Route
from ..schedule import roles_of

KINDS = ("reduce-scatter", "reduce-scatter-nmc", "all-gather")  #: around a ring
EXCHANGE = "all-to-all"


class Steps(NamedTuple):
    """Which chunk goes where in each step, of the simulated devices."""

    sends: np.ndarray  # int64 [device, step]: chunk that it sends, in the last step the one that stays
    lands: np.ndarray  # int64 [device, step]: chunk that its stores at the neighbour are of; differs if mirrored
    downstream: list[int]  # device, among the simulated ones, that each sends to


def plan_steps(program: Program, mirrored: bool) -> Steps:
    """Read the steps off a ring collective; the first simulated device is the rank that begins with chunk 0.

    Mirrored, one device stands for all: what it sends lands with it as what the rank that feeds it sends just then.
    """
    roles = roles_of(program)
    chunks = np.array([[role.chunk for role in own] for own in roles])
    feeders = [own[-1].fed_by[0].device for own in roles]
    first = int(np.flatnonzero(chunks[:, 0] == 0)[0])
    if mirrored:
        return Steps(chunks[[first]], chunks[[feeders[first]]], [0])
    ranks = [(first + index) % program.ranks for index in range(program.ranks)]
    return Steps(chunks[ranks], chunks[ranks], [ranks.index(roles[rank][0].routes[0].device) for rank in ranks])


def exchange_passes(ranks: int, chunk_bytes: int, data: int, received: int) -> list[list[Pass]]:
    """List the passes of a direct all-to-all on one GPU that stands for all: what each peer gets, one after the other.

    The kernel ends when as much has come. `data`, `received`: addresses of the chunks that leave, and that come.
    """
    lines = lines_of(chunk_bytes)
    pitch, peers = lines * LINE_BYTES, ranks - 1
    return [[Pass((data + peer * pitch,), received + peer * pitch, Route.PEER,
                  arrivals=peers * lines if peer == peers - 1 else 0) for peer in range(peers)]]


def passes(steps: Steps, kind: str, chunk_bytes: int, data: int, copies: int) -> list[list[Pass]]:
    """List each simulated device's passes over chunks of `chunk_bytes`, which begin on lines.

    `kind`: of `KINDS`; `data`, `copies`: addresses of the array and of received copies (reduce-scatter without
    near-memory compute).
    """
    lines = lines_of(chunk_bytes)
    pitch, reduces = lines * LINE_BYTES, kind == "reduce-scatter"
    found = []
    for sends, lands in zip(steps.sends.tolist(), steps.lands.tolist()):
        found.append([])
        for step, (own, there) in enumerate(zip(sends, lands)):
            last, own_at = step == len(sends) - 1, data + own * pitch
            sources = (own_at, copies + own * pitch) if reduces and step > 0 else (own_at,)
            if not last:
                found[-1].append(Pass(sources, (copies if reduces else data) + there * pitch, Route.PEER,
                                      updates=kind == "reduce-scatter-nmc", arrivals=(step + 1) * lines))
            elif reduces:
                found[-1].append(Pass(sources, own_at))
    return found
