"""Description of a collective alone in trace.json: each device's steps, what their passes move and for whom."""

from t3sim.collectives import Op
from t3sim.mechanisms.program_kernels import LevelPlan, most_additions
from t3sim.runs import build
from t3sim.runs.collective_alone import ProgrammedCollective
from t3sim.trace.passes import HERE
from t3sim.workload.operators.copy import Pass, Share
from t3sim.workload.operators.kernel_table import Route


def described_passes(run: ProgrammedCollective) -> dict:
    """Describe a run's passes, as `passes.Passes` reads them."""
    operator = build.planned_copy(run.asked.machine, run.plans)
    state, arrivals = run.sim.kernel.state, run.sim.kernel.work.arrivals
    gpus = []
    for d, plan in enumerate(run.plans):
        shares, steps = list(operator.shares(d)), []
        for step in range(arrivals.shape[1]):
            mine = [share for share in shares if share.phase == step]
            steps.append({
                "over": int(state.phase_over[d, step]) if step < state.phase[d] else None,
                "lines": int(arrivals[d, step]),
                "passes": [described for one in mine[0].passes for described in _described(plan, one, step)],
                "shares": [_share(one, shares) for one in mine]})
        gpus.append({"start": int(run.sim.control.start[d]), "steps": steps})
    return {"chunk_bytes": run.asked.chunk_bytes, "gpus": gpus}


def _share(share: Share, shares: list[Share]) -> dict[str, int]:
    return {"first": sum(one.workgroups for one in shares[:shares.index(share)]), "workgroups": share.workgroups,
            "first_byte": share.first_byte, "apart": share.apart_bytes, "size": share.size_bytes}


def _described(plan: LevelPlan, one: Pass, step: int) -> list[dict]:
    """Describe a pass; its first source is its own part of the chunk, the others came to be added.

    What a switch copies is a pass to each that gets it, with the number and the address under which it leaves.
    """
    at, held, ranks = plan.at, plan.program.held[plan.rank], plan.program.ranks
    pitch = at.received(1) - at.copies
    chunk = held[(one.sources[0] - at.data) // pitch]
    sources = [{"address": one.sources[0], "origin": _copied_from(plan, chunk, step)}]
    for address in one.sources[1:]:
        place, number = divmod((address - at.copies) // pitch, most_additions(plan.program))
        came = plan.program.transfers[plan.program.additions[plan.rank, held[place]][number]]
        sources.append({"address": address, "origin": came.source})
    to = plan.peers[one.peer] if one.route == Route.PEER else HERE
    comes_from = (2 * plan.rank - to) % ranks if plan.mirrored and to != HERE else plan.rank
    found = {"chunk": chunk, "sources": sources, "destination": one.destination, "to": to, "comes_from": comes_from}
    if to < ranks:
        return [found]
    return [found | {"destination": one.destination + offset, "to": device, "comes_from": plan.rank,
                     "copied": {"to": to, "address": one.destination}} for device, offset in plan.copied_to]


def _copied_from(plan: LevelPlan, chunk: int, step: int) -> int:
    """Return from which device a chunk has come before a step, HERE: it is the device's own, or its own sum."""
    program = plan.program
    came = [index for index in program.arrivals.get((plan.rank, chunk), ())
            if program.transfers[index].op is Op.COPY and program.levels[index] < step]
    return program.transfers[came[-1]].source if came else HERE
