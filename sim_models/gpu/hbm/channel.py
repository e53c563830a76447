"""The two calls of a lockstep loop: put a request into a channel's queue, step a channel by one memory cycle."""

from t3sim.base.compiled.jit import inlined
from t3sim.gpu.hbm import fr_fcfs, gpgpusim
from t3sim.gpu.hbm.address import bank_of, row_of
from t3sim.gpu.hbm.state import GPGPUSIM, HbmState

READ, STORE, UPDATE = 0, 1, 2  #: request operations; UPDATE is op-and-store by the near-memory ALU


@inlined
def hbm_has_room(state: HbmState, channel: int, cycle: int) -> bool:
    """Return whether a request may be queued in this cycle."""
    record = state.channels[channel]
    return record.occupancy < state.queue_entries and record.entry_next <= cycle


@inlined
def hbm_enqueue(state: HbmState, channel: int, cycle: int, local_line: int, op: int, token: int) -> None:
    """Queue one 64-byte request of `channel`.

    The caller has asked `hbm_has_room`. `local_line` is the channel-local line index, `op` READ, STORE or UPDATE,
    `token` a non-negative number that `hbm_step` gives back. A request queued in a cycle before `hbm_step` is called
    for that cycle may lead to a command in it.
    """
    config = state.config[0]
    row = row_of(config, local_line)
    if config.scheduler == GPGPUSIM:
        gpgpusim.enqueue(config, state.channels[channel], cycle, row, local_line, op, token)
    else:
        fr_fcfs.enqueue(config, state.channels[channel], cycle, row, bank_of(config, local_line), local_line, op, token)


@inlined
def hbm_step(state: HbmState, channel: int, cycle: int) -> int:
    """Issue at most one row and one column command; cycles must not go backwards.

    Returns the token of the request whose last column command was issued, else -1. Read data end
    `state.read_data_cycles` later. Nothing happens before `state.next_cycle[channel]`, so such calls may be left out.
    """
    config, record = state.config[0], state.channels[channel]
    if cycle < record.next_cycle:
        return -1
    if config.scheduler == GPGPUSIM:
        return gpgpusim.step(config, record, cycle)
    return fr_fcfs.step(config, record, cycle)
