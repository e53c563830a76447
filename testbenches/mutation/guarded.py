"""Registers that may differ while nobody looks at them, which a proof of equivalence must know.

An invalid row of a memory may hold anything. A mutant that leaves something else there is the same machine, but
induction over equal registers cannot see it, for the rows do differ. They never differ *while valid*. So where the two
copies of a register were seen to differ in random runs, though never while some other register was 1 (or never while it
was 0), both copies in conjunction with that register are added to the circuit, as outputs. ABC's `scorr` looks for
nodes that are equal in every cycle and proves them by induction all at once; a guess that is wrong is dropped.
"""

from dataclasses import replace
from pathlib import Path

from t3sim.cosim.yosys import OutOfTime, run_yosys
from t3sim.testbenches.mutation.aiger import EVERY_RUN, Circuit

_CYCLES = 300
MERGE_S = 60  #: for `scorr`, which has no limit of its own
#: ABC needs a design to work on, and gets it back.
ANY = """\
module \\any
  wire input 1 \\a
  wire output 2 \\b
  cell $_NOT_ \\n
    connect \\A \\a
    connect \\Y \\b
  end
end
"""


def never(circuit: Circuit, folder: Path) -> bool:
    """Say whether `scorr` proves in time that the first output is 0 in every cycle. Writes into the folder."""
    (folder / "guarded.aig").write_bytes(circuit.write())
    (folder / "any.il").write_text(ANY)
    (folder / "merge.abc").write_text("backup\nread_aiger guarded.aig\nscorr\nwrite_aiger merged.aig\nrestore\n")
    try:
        run_yosys("read_rtlil any.il\nabc -script merge.abc\n", folder, MERGE_S)
    except OutOfTime:
        return False
    return Circuit.read((folder / "merged.aig").read_bytes()).outputs[0] == 0


def pairs(circuit: Circuit) -> list[tuple[int, int]]:
    """Return each register's variables in the two machines: it is named alike but for `original.` and `mutated.`."""
    return sorted({(number, circuit.names[other]) for name, number in circuit.names.items()
                   if name.startswith("original.")
                   and (other := name.replace("original.", "mutated.", 1)) in circuit.names})


def with_guards(circuit: Circuit, seed: int = 1) -> Circuit:
    """Add guards to a circuit of two machines."""
    first = circuit.first_latch
    places = [(here - first, there - first) for here, there in pairs(circuit)]
    ands, outputs = list(circuit.ands), list(circuit.outputs)
    for pair, guards in _guards(circuit, places, seed).items():
        for guard, inverted in guards:
            for latch in pair:
                outputs.append(2 * (circuit.first_and + len(ands)))
                ands.append((2 * (first + guard) + inverted, 2 * (first + latch)))
    return replace(circuit, ands=tuple(ands), outputs=tuple(outputs))


def _guards(circuit: Circuit, pairs: list[tuple[int, int]], seed: int) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return, for each pair of latches that differ in random runs, the equal ones that are never 1 then.

    With a 1 beside them it is those that are never 0.
    """
    differ, ones, zeros = dict.fromkeys(pairs, 0), dict.fromkeys(pairs, 0), dict.fromkeys(pairs, 0)
    for state in circuit.random_runs(_CYCLES, seed):
        for pair in pairs:
            a, b = state[pair[0]], state[pair[1]]
            differ[pair] |= a ^ b
            ones[pair] |= a
            zeros[pair] |= a ^ EVERY_RUN
    equal = [pair[0] for pair in pairs if not differ[pair] and ones[pair] and zeros[pair]]
    left = {pair: [(guard, inverted) for guard in equal for inverted in range(2)] for pair in pairs if differ[pair]}
    for state in circuit.random_runs(_CYCLES, seed):
        for (a, b), guards in left.items():
            if now := state[a] ^ state[b]:
                guards[:] = [(guard, inverted) for guard, inverted in guards
                             if not now & (~state[guard] if inverted else state[guard])]
    return left
