"""The admission rule that keeps GPUs from waiting for each other in a circle.

Plain Python on integers or Amaranth values: the RTL, its model, the proof and the order argument on schedules share
these functions (docs/why/five-questions.md, question 2).
"""


def may_start(opens, reaches, tile_id, there, near, far):
    """Return whether a request may be admitted: every id that it touches is inside its GPU's window.

    opens, reaches: 0 or 1: it opens `tile_id` here; it reaches a peer, where `there` is its largest id.
    near, far: one past the last id inside the window here, and at that peer. Heads only advance, so old heads delay a
    request but never admit it too early.
    """
    return ((opens == 0) | (tile_id < near)) & ((reaches == 0) | (there < far))


def follows(number, before, last=255):
    """Return whether a kernel's number is later than another's: by less than half of the circle 1, 2, ..., `last`, 1.

    Number 0 is no kernel; any other follows it. `last`: 2^n - 1 for numbers of n bits.
    """
    ahead = (number - before - (number < before)) & last
    return (number != 0) & ((before == 0) | ((ahead != 0) & (ahead <= last // 2)))
