"""Places where a payload can wait inside the project's queues."""

from amaranth.hdl import Value

from t3sim.testbenches.formal.spec import Spec, implies


def entries(spec: Spec, queue) -> list[tuple]:
    """List (valid, content) of the places of a `PointerQueue`, the oldest first."""
    level, read = spec.inside("level", queue), spec.inside("read", queue)
    spec.invariant(level <= queue._depth)
    found = [(level > place, spec.peek(queue._memory, place_of(read, place))) for place in range(queue._depth)]
    oldest = Value.cast(found[0][1])  # wherever it was read, before the clock's edge or after it
    spec.invariant(implies(queue.output.valid, Value.cast(queue.output.payload) == oldest))
    return found


def place_of(read, offset: int) -> Value:
    """Return the address in a `PointerQueue`'s memory of the entry that is `offset` places after the oldest."""
    return (read + offset)[:max(1, len(read) - 1)]
