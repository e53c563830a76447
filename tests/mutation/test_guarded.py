"""Proofs of equivalence for registers that may differ while nobody looks at them."""

import pytest

from t3sim.testbenches.mutation.aiger import Circuit
from t3sim.testbenches.mutation.guarded import never, pairs, with_guards

pytestmark = [pytest.mark.builds_rtl, pytest.mark.slow]

SET, DATA, DROP, VALID, HERE, THERE = range(2, 14, 2)  # literals


class Graph:
    """ANDs behind inputs and latches."""

    def __init__(self, first: int) -> None:
        self._first, self.ands = first, []

    def both(self, a: int, b: int) -> int:
        self.ands.append((max(a, b), min(a, b)))
        return 2 * (self._first + len(self.ands) - 1)

    def either(self, a: int, b: int) -> int:
        return self.both(a ^ 1, b ^ 1) ^ 1

    def choose(self, condition: int, a: int, b: int) -> int:
        return self.either(self.both(condition, a), self.both(condition ^ 1, b))

    def unequal(self, a: int, b: int) -> int:
        return self.choose(a, b ^ 1, b)


def two_machines(looks_at_valid: bool) -> Circuit:
    """A register with a valid bit. When it is dropped one machine clears it, the other sets it."""
    g = Graph(7)
    valid = g.either(SET, g.both(VALID, DROP ^ 1))
    here = g.choose(SET, DATA, g.both(HERE, DROP ^ 1))
    there = g.choose(SET, DATA, g.either(THERE, DROP))
    differ = g.unequal(HERE, THERE)
    output = g.both(VALID, differ) if looks_at_valid else differ
    return Circuit(3, (valid, here, there), (output,), tuple(g.ands),
                   {"valid": 4, "original.valid": 4, "mutated.valid": 4, "original.data": 5, "mutated.data": 6})


def test_a_file_is_read_as_it_was_written():
    circuit = two_machines(True)
    again = Circuit.read(circuit.write())
    assert (again.inputs, again.latches, again.outputs, again.ands) == (
        circuit.inputs, circuit.latches, circuit.outputs, circuit.ands)


def test_what_is_never_looked_at_may_differ(tmp_path):
    circuit = two_machines(True)
    guarded = with_guards(circuit)
    assert len(guarded.outputs) == 3  # valid & data of both machines, and nothing while invalid
    assert never(guarded, tmp_path)
    assert not never(with_guards(two_machines(False)), tmp_path)


def test_what_two_machines_share_is_one():
    circuit = two_machines(True)
    left = circuit.reduced({}, pairs(circuit))
    assert len(left.latches) == 3 and len(pairs(left)) == 2 and len(left.ands) <= len(circuit.ands)
    free = circuit.reduced({}, pairs(circuit), free=True)
    assert (free.inputs, len(free.latches)) == (4, 2), "valid is an input now"
    left = circuit.reduced({DROP // 2: 0}, pairs(circuit))
    assert (left.outputs, left.latches, left.ands) == ((0,), (), ())


def test_what_follows_a_difference_is_not_shared():
    """A register whose next value is another's, which differs between the two machines."""
    g = Graph(6)
    output = g.unequal(2 * 4, 2 * 5)
    circuit = Circuit(1, (2, 3, 2 * 2, 2 * 3), (output,), tuple(g.ands),
                      {"original.first": 2, "mutated.first": 3, "original.second": 4, "mutated.second": 5})
    assert len(circuit.reduced({}, pairs(circuit)).latches) == 4
    same = Circuit(1, (2, 2, 2 * 2, 2 * 3), (output,), tuple(g.ands), circuit.names)
    assert same.reduced({}, pairs(same)).outputs == (0,)


@pytest.mark.parametrize("seed", range(3))
def test_random_runs_are_those_of_the_circuit(seed):
    states = list(two_machines(True).random_runs(40, seed))
    assert states[0] == [0, 0, 0] and any(state[1] != state[2] for state in states)
    assert all(not state[0] & (state[1] ^ state[2]) for state in states)
