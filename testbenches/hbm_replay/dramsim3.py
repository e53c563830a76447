"""A controller that decides as DRAMsim3's does, for replaying a trace on one channel.

Written from that simulator's behaviour, so that differences between its results and ours are differences of timing:

- One request is offered per cycle, after the controller's step, in trace order, and blocks those after it. Read queue
  and write buffer take `read_queue_entries` and `write_buffer_entries`.
- A read of a line that is about to be written gets its data from the buffer, reads of one line share one column access,
  writes to one line merge.
- Per cycle one transaction moves to its bank's command queue: the oldest whose queue has room, of the writes during a
  drain, otherwise of the reads. A drain begins when the write buffer is full, or holds more than `write_drain_minimum`
  and all command queues are empty, and moves as many writes as were then present. A write whose line has a pending
  read ends it.
- Banks are served round robin from the one after the last served. Within a bank's queue the first command that may be
  issued goes. A precharge needs the oldest command to want another row, and either no hit after it or
  `row_hit_limit` columns served. A second command may follow in the same cycle; it is dropped (and the turn with it)
  if it is of the same kind, row or column, as the first.
- Refresh stops everything, closes the banks one per cycle, and refreshes all. Refresh per bank stops that bank.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.by_reference import lowest_bit
from t3sim.base.compiled.jit import compiled
from t3sim.gpu.hbm.address import bank_of, row_of
from t3sim.gpu.hbm.bits import item, put
from t3sim.gpu.hbm.state import ACT, NEVER, NOWHERE, PRE, RD, REF, REFPB, WR
from t3sim.gpu.hbm.timing import (
    activate,
    activate_ready,
    all_closed_ready,
    bank_refresh_ready,
    choose_bank_to_refresh,
    log_command,
    precharge,
    read_column,
    read_ready,
    refresh,
    refresh_bank,
    refresh_bank_to_close,
    write_column,
    write_ready,
)
from t3sim.machine.dram import Dram

BUCKETS = 256  #: of the hash table over pending lines


def make_front(dram: Dram) -> np.ndarray:
    """Make the queues of one channel's controller: record[1]."""
    entries = dram.read_queue_entries + dram.write_buffer_entries + dram.banks * dram.command_queue_entries_per_bank
    scalars = (
        "depth", "read_entries", "write_entries", "drain_minimum",
        "free", "age", "reads", "writes", "queued", "pending_reads",
        "draining", "turn", "refresh_waiting", "command_next",
        "waiting_read", "waiting_write",  # masks over banks: transactions not yet in a command queue
        "busy", "full",  # masks over banks: command queue not empty, full
        "end",  # end of the last data burst so far
    )
    tables = (
        ("bucket", BUCKETS), ("chain", entries), ("line", entries), ("row", entries), ("bank", entries),
        ("op", entries), ("request", entries), ("order", entries), ("next", entries),
        ("head", 2 * dram.banks), ("tail", 2 * dram.banks),
        ("queue", dram.banks * dram.command_queue_entries_per_bank), ("length", dram.banks),
        ("read_hit", dram.banks), ("write_hit", dram.banks),  # first position in the command queue, or NOWHERE
    )
    fields = [(name, np.int64) for name in scalars] + [(name, np.int64, (size,)) for name, size in tables]
    front = np.zeros(1, np.dtype(fields))
    front["depth"] = dram.command_queue_entries_per_bank
    front["read_entries"] = dram.read_queue_entries
    front["write_entries"] = dram.write_buffer_entries
    front["drain_minimum"] = dram.write_drain_minimum
    front["chain"] = np.append(np.arange(1, entries), NOWHERE)
    for name in ("bucket", "head", "tail", "read_hit", "write_hit"):
        front[name] = NOWHERE
    return front


@compiled
def _bucket(line: int) -> int:
    return ((line * 0x9E3779B1) >> 16) & (BUCKETS - 1)


@compiled
def _find(front: np.record, line: int, op: int) -> int:
    """Find the pending entry for a line and operation, or NOWHERE."""
    entry = item(front, "bucket", _bucket(line))
    while entry >= 0 and (item(front, "line", entry) != line or item(front, "op", entry) != op):
        entry = item(front, "chain", entry)
    return entry


@compiled
def _forget(front: np.record, entry: int) -> None:
    """Take an entry out of the hash table and free it."""
    bucket = _bucket(item(front, "line", entry))
    after = item(front, "chain", entry)
    other = item(front, "bucket", bucket)
    if other == entry:
        put(front, "bucket", bucket, after)
    else:
        while item(front, "chain", other) != entry:
            other = item(front, "chain", other)
        put(front, "chain", other, after)
    put(front, "chain", entry, front.free)
    front.free = entry


@compiled
def _accept(config: np.record, front: np.record, cycle: int, line: int, op: int, request: int, done: np.ndarray,
            mates: np.ndarray) -> None:
    """Take request number `request`; there is room."""
    if _find(front, line, 1) >= 0:
        if op == 0:
            done[request] = cycle + 2  # from the write buffer
        return
    if op == 0:
        front.pending_reads += 1
        entry = _find(front, line, 0)
        if entry >= 0:
            mates[request] = item(front, "request", entry)
            put(front, "request", entry, request)
            return
    banks = config.banks
    bank = bank_of(config, line)
    entry = front.free
    front.free = item(front, "chain", entry)
    bucket = _bucket(line)
    put(front, "chain", entry, item(front, "bucket", bucket))
    put(front, "bucket", bucket, entry)
    put(front, "line", entry, line)
    put(front, "row", entry, row_of(config, line))
    put(front, "bank", entry, bank)
    put(front, "op", entry, op)
    put(front, "request", entry, request)
    put(front, "order", entry, front.age)
    front.age += 1
    put(front, "next", entry, NOWHERE)
    place = op * banks + bank
    last = item(front, "tail", place)
    put(front, "tail", place, entry)
    if last >= 0:
        put(front, "next", last, entry)
    else:
        put(front, "head", place, entry)
        if op == 0:
            front.waiting_read |= 1 << bank
        else:
            front.waiting_write |= 1 << bank
    if op == 0:
        front.reads += 1
    else:
        front.writes += 1


@compiled
def _find_hits(front: np.record, channel: np.record, bank: int) -> None:
    """Find the first read and the first write of the open row in a bank's command queue."""
    row = item(channel, "open_row", bank)
    first_read = first_write = NOWHERE
    length = item(front, "length", bank)
    base = bank * front.depth
    if row >= 0:
        for position in range(length - 1, -1, -1):
            entry = item(front, "queue", base + position)
            if item(front, "row", entry) == row:
                if item(front, "op", entry) == 0:
                    first_read = position
                else:
                    first_write = position
    put(front, "read_hit", bank, first_read)
    put(front, "write_hit", bank, first_write)


@compiled
def _oldest(config: np.record, front: np.record, op: int, candidates: int) -> int:
    """Find, of the banks in a non-empty mask, the one whose first waiting transaction is oldest."""
    best, oldest = -1, NEVER
    while candidates:
        bank = lowest_bit(candidates)
        candidates &= candidates - 1
        order = item(front, "order", item(front, "head", op * config.banks + bank))
        if order < oldest:
            best, oldest = bank, order
    return best


@compiled
def _schedule(config: np.record, front: np.record, channel: np.record) -> bool:
    """Move at most one transaction to its bank's command queue; True if anything changed."""
    if front.draining == 0 and (front.writes >= front.write_entries
                                or (front.writes > front.drain_minimum and front.queued == 0)):
        front.draining = front.writes
    op = 1 if front.draining > 0 else 0
    candidates = (front.waiting_write if op else front.waiting_read) & ~front.full
    if candidates == 0:
        return False
    banks = config.banks
    bank = _oldest(config, front, op, candidates)
    place = op * banks + bank
    entry = item(front, "head", place)
    if op == 1:
        if front.pending_reads and _find(front, item(front, "line", entry), 0) >= 0:
            front.draining = 0
            if front.writes < front.write_entries:
                return True
            # A full write buffer would start the next drain at once and never let that read into a command queue:
            # DRAMsim3 hangs then, this model moves reads meanwhile.
            candidates = front.waiting_read & ~front.full
            if candidates == 0:
                return False
            op = 0
            bank = _oldest(config, front, op, candidates)
            place = op * banks + bank
            entry = item(front, "head", place)
    if op == 1:
        front.draining -= 1
        front.writes -= 1
    else:
        front.reads -= 1
    after = item(front, "next", entry)
    put(front, "head", place, after)
    if after < 0:
        put(front, "tail", place, NOWHERE)
        if op == 0:
            front.waiting_read &= ~(1 << bank)
        else:
            front.waiting_write &= ~(1 << bank)
    length = item(front, "length", bank)
    put(front, "queue", bank * front.depth + length, entry)
    put(front, "length", bank, length + 1)
    front.busy |= 1 << bank
    if length + 1 == front.depth:
        front.full |= 1 << bank
    front.queued += 1
    if item(channel, "open_row", bank) == item(front, "row", entry):
        if op == 0:
            if item(front, "read_hit", bank) < 0:
                put(front, "read_hit", bank, length)
        elif item(front, "write_hit", bank) < 0:
            put(front, "write_hit", bank, length)
    return True


@compiled
def _first_ready(config: np.record, front: np.record, channel: np.record, bank: int, cycle: int) -> tuple[int, int]:
    """Return (position, earliest): the command of a bank's queue that may go now, and 0, or -1 and when one may.

    Position `depth` stands for a PRE.
    """
    if not channel.open >> bank & 1:
        ready = activate_ready(config, channel, bank)
        return (0, 0) if ready <= cycle else (-1, ready)
    first_read, first_write = item(front, "read_hit", bank), item(front, "write_hit", bank)
    earliest = NEVER
    if first_read != 0 and first_write != 0:
        if (first_read < 0 and first_write < 0) or item(channel, "hits_served", bank) >= config.row_hit_limit:
            ready = item(channel, "bank_pre_ready", bank)
            if ready <= cycle:
                return front.depth, 0
            earliest = ready
    position = -1
    if first_read >= 0:
        ready = read_ready(config, channel, bank)
        if ready <= cycle:
            position = first_read
        else:
            earliest = min(earliest, ready)
    if first_write >= 0 and (position < 0 or first_write < position):
        ready = write_ready(config, channel, bank)
        if ready <= cycle:
            position = first_write
        else:
            earliest = min(earliest, ready)
    return position, earliest


@compiled
def _next_command(config: np.record, front: np.record, channel: np.record, cycle: int) -> tuple[int, int]:
    """Return (bank, position) of the next command in turn; moves the turn.

    It is (-1, earliest cycle of one) if none may go.
    """
    busy = front.busy & ~channel.refreshing
    above = busy & -(2 << front.turn)
    below = busy & ~above
    earliest = NEVER
    for half in range(2):
        candidates = above if half == 0 else below
        while candidates:
            bank = lowest_bit(candidates)
            candidates &= candidates - 1
            position, ready = _first_ready(config, front, channel, bank, cycle)
            if position >= 0:
                front.turn = bank
                return bank, position
            earliest = min(earliest, ready)
    return -1, earliest


@compiled
def _issue_column(config: np.record, front: np.record, channel: np.record, cycle: int, bank: int, position: int,
                  done: np.ndarray, mates: np.ndarray) -> None:
    """Issue an RD or WR of a command in the queue."""
    base = bank * front.depth
    entry = item(front, "queue", base + position)
    length = item(front, "length", bank) - 1
    for place in range(base + position, base + length):
        put(front, "queue", place, item(front, "queue", place + 1))
    put(front, "length", bank, length)
    if length == 0:
        front.busy &= ~(1 << bank)
    front.full &= ~(1 << bank)
    front.queued -= 1
    put(channel, "hits_served", bank, item(channel, "hits_served", bank) + 1)
    op = item(front, "op", entry)
    if op == 0:
        read_column(config, channel, cycle, bank)
        end = cycle + config.read_data
        request = item(front, "request", entry)
        while request >= 0:
            done[request] = end
            front.pending_reads -= 1
            request = mates[request]
    else:
        write_column(config, channel, cycle, bank, op == 2)
        end = cycle + config.write_data
    front.end = max(front.end, end)
    if channel.log_entries:
        log_command(channel, cycle, WR if op else RD, bank, item(front, "line", entry))
    _forget(front, entry)
    _find_hits(front, channel, bank)


@compiled
def _issue_row(config: np.record, front: np.record, channel: np.record, cycle: int, bank: int, position: int) -> None:
    """Issue a PRE or ACT for a bank's queue."""
    if position == front.depth:
        precharge(config, channel, cycle, bank)
        if channel.log_entries:
            log_command(channel, cycle, PRE, bank, 0)
    else:
        row = item(front, "row", item(front, "queue", bank * front.depth))
        activate(config, channel, cycle, bank, row)
        if channel.log_entries:
            log_command(channel, cycle, ACT, bank, row)
    _find_hits(front, channel, bank)


@compiled
def _refresh_step(config: np.record, front: np.record, channel: np.record, cycle: int) -> int:
    """Step one cycle of a refresh that is due; return the next cycle in which something may happen."""
    if channel.open:
        bank = refresh_bank_to_close(channel, cycle, config.banks)
        if bank < 0:
            return -1 - bank
        precharge(config, channel, cycle, bank)
        _find_hits(front, channel, bank)
        if channel.log_entries:
            log_command(channel, cycle, PRE, bank, 0)
        return cycle + 1
    ready = all_closed_ready(config, channel)
    if ready > cycle:
        return ready
    refresh(config, channel, cycle)
    front.refresh_waiting = 0
    if channel.log_entries:
        log_command(channel, cycle, REF, 0, 0)
    return cycle + 1


@compiled
def _second_command(config: np.record, front: np.record, channel: np.record, cycle: int, column: bool, done: np.ndarray,
                    mates: np.ndarray) -> int:
    """Issue one more command if the next in turn is of the other kind; return the next cycle in which one may go."""
    bank, position = _next_command(config, front, channel, cycle)
    if bank < 0:
        return max(position, cycle + 1)
    second_column = channel.open >> bank & 1 == 1 and position < front.depth
    if second_column and not column:
        _issue_column(config, front, channel, cycle, bank, position, done, mates)
    elif column and not second_column:
        _issue_row(config, front, channel, cycle, bank, position)
    return cycle + 1


@compiled
def _bank_refresh_step(config: np.record, front: np.record, channel: np.record, cycle: int, done: np.ndarray,
                       mates: np.ndarray) -> int:
    """Step one cycle of a bank's refresh, which goes first; return the next cycle in which something may happen."""
    if channel.refreshing == 0:
        choose_bank_to_refresh(config, channel, 0)
    bank = lowest_bit(channel.refreshing)
    is_open = channel.open >> bank & 1 == 1
    ready = item(channel, "bank_pre_ready", bank) if is_open else bank_refresh_ready(config, channel, bank)
    if ready > cycle:
        return min(ready, _commands(config, front, channel, cycle, done, mates))
    if is_open:
        precharge(config, channel, cycle, bank)
        _find_hits(front, channel, bank)
    else:
        refresh_bank(config, channel, cycle, bank)
        front.refresh_waiting = 0
    if channel.log_entries:
        log_command(channel, cycle, PRE if is_open else REFPB, bank, 0)
    _second_command(config, front, channel, cycle, False, done, mates)
    return cycle + 1


@compiled
def _commands(config: np.record, front: np.record, channel: np.record, cycle: int, done: np.ndarray,
              mates: np.ndarray) -> int:
    """Issue up to two commands; returns the next cycle in which one may go."""
    bank, position = _next_command(config, front, channel, cycle)
    if bank < 0:
        return position
    column = channel.open >> bank & 1 == 1 and position < front.depth
    if column:
        _issue_column(config, front, channel, cycle, bank, position, done, mates)
    else:
        _issue_row(config, front, channel, cycle, bank, position)
    return _second_command(config, front, channel, cycle, column, done, mates)


class Requests(NamedTuple):
    """A trace and what becomes of it, int64[request] each."""

    lines: np.ndarray
    ops: np.ndarray  # 0 read, 1 write
    cycles: np.ndarray  # the earliest of each
    accepted: np.ndarray  # cycle
    done: np.ndarray  # end of a read's data
    mates: np.ndarray  # scratch, filled with -1


@compiled
def run(config: np.record, front: np.record, channel: np.record, requests: Requests, start: int, stop: int,
        cycle: int) -> tuple[int, int]:
    """Offer requests [start, stop) and, after the last of the trace, go on until nothing is left to do.

    Writes `accepted` and `done`. Returns (requests accepted so far, cycle reached).
    """
    lines, ops, cycles, accepted, done, mates = requests
    n = lines.shape[0]
    i = start
    while i < stop or (stop == n and (front.pending_reads > 0 or front.queued > 0 or front.draining > 0
                                      or front.writes > front.drain_minimum)):
        changed = False
        if cycle >= channel.refresh_due:
            front.refresh_waiting = 1
        if front.command_next <= cycle:
            if front.refresh_waiting and config.refresh_per_bank:
                front.command_next = _bank_refresh_step(config, front, channel, cycle, done, mates)
            elif front.refresh_waiting:
                front.command_next = _refresh_step(config, front, channel, cycle)
            else:
                front.command_next = _commands(config, front, channel, cycle, done, mates)
        if _schedule(config, front, channel):
            if config.refresh_per_bank or not front.refresh_waiting:
                front.command_next = min(front.command_next, cycle + 1)
            changed = True
        following = front.command_next
        if i < stop:
            room = front.reads < front.read_entries if ops[i] == 0 else front.writes < front.write_entries
            if cycles[i] > cycle:
                following = min(following, cycles[i])
            elif room:
                accepted[i] = cycle
                _accept(config, front, cycle, lines[i], ops[i], i, done, mates)
                i += 1
                changed = True
        if changed:
            cycle += 1
        else:
            if not front.refresh_waiting:
                following = min(following, channel.refresh_due)
            cycle = max(cycle + 1, following)
        if not front.refresh_waiting and cycle >= channel.refresh_due:
            front.command_next = cycle
    return i, cycle
