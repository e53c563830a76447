"""Requests that a scenario comes to: sub-layers with all that simulating them needs, or a line that says why not.

Whatever is refused of the cycle level is refused here, or by what is called from here, before anything runs. Messages
have the scenario's words, `exchange.topology = ring`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from t3sim.base.errors import BadInput, choices
from t3sim.base.line import LINE_BYTES
from t3sim.machine import Machine, load_machine
from t3sim.machine.fraction import fraction_of
from t3sim.mechanisms.decomposed.kernels import units_left
from t3sim.mechanisms.flux.storing import FluxOptions, tuned
from t3sim.mechanisms.table import BY_DEFAULT, TECHNIQUES, check_split_k
from t3sim.mechanisms.track_trigger import FUSIONS, fusion, policy_of
from t3sim.rtl.arbiter import POLICIES
from t3sim.runs.exchange import EXPERTS, FUSED_OPERATORS, Exchange, fused_collective, fused_with
from t3sim.runs.kernels import Kernel
from t3sim.runs.operators import with_its_kernel
from t3sim.runs.plan import Plan, Policy
from t3sim.runs.skew import Skew
from t3sim.runs.split_k import with_split_k
from t3sim.runs.sums import BLOCKS, sums_of
from t3sim.study import techniques
from t3sim.study.results import FileRun, Numbers, RunResult
from t3sim.study.scenario.kinds import check_keys, is_alone
from t3sim.study.scenario.layers import of_file, workloads_of
from t3sim.study.scenario.scenario import ALONE, Scenario, setting
from t3sim.study.tasks.store import Results
from t3sim.study.tasks.task import KernelTask, kernel_task
from t3sim.workload.workloads import Workload

OPERATORS = (*FUSED_OPERATORS, *ALONE)
#: Elements of all GPUs' outputs that carry numbers, at most: each takes some 50 bytes.
_MOST_NUMBERS = 1 << 24
#: Keys of a technique's own section, beside those of technique t3.
_TECHNIQUE_OF_KEY = {"decomposed.communication_units": "decomposed", "flux.order": "flux", "flux.pieces": "flux",
                     "flux.tune": "flux"}


@dataclass(frozen=True)
class LayerRequest:
    """Simulations for a scenario; made by `layer_request`."""

    scenario: Scenario
    techniques: tuple[str, ...]
    plans: tuple[Plan, ...]  #: one for each sub-layer
    times: tuple[int, ...]  #: how often a file has each
    notes: tuple[str, ...]  #: for people: what was read in a file

    @property
    def of_file(self) -> bool:
        """Say whether the sub-layers are those of a file."""
        return of_file(self.scenario.layer)

    def missing(self, plan: Plan, store: Results | None) -> list[Kernel]:
        """List the simulations of a sub-layer whose results are not kept."""
        return [kernel for kernel, task in self.tasks(plan).items() if store is None or store.load(task) is None]

    def run(self, progress: Callable[[str, float], None], store: Results | None = None,
            jobs: int | None = None) -> RunResult | FileRun:
        """Run all sub-layers; arguments and errors as of `run_plan`."""
        return self.answer([self.run_plan(plan, progress, store, jobs) for plan in self.plans])

    def run_plan(self, plan: Plan, progress: Callable[[str, float], None], store: Results | None = None,
                 jobs: int | None = None) -> RunResult:
        """Run a sub-layer under all techniques, then with numbers, if it is to carry some.

        Arguments and errors as of `techniques.run_sublayer`.
        """
        result = techniques.run_sublayer(plan, self.techniques, progress, jobs, store)
        if not self.scenario.layer.values:
            return result
        return replace(result, numbers=self.numbers(plan, lambda share: progress("numbers", share)))

    def numbers(self, plan: Plan, progress: Callable[[float], None]) -> Numbers:
        """Run a sub-layer's first technique of Track & Trigger on all GPUs, with matrices drawn from the seed.

        Raises SimulationError for a bit that is not numpy's.
        """
        from t3sim.runs.data_mode import run_data_mode

        name = next(name for name in self.techniques if name in FUSIONS)
        kernel = fusion(name, plan)
        fused_plan = kernel.prepare(plan)
        result = run_data_mode(fused_plan, Policy.of(kernel.policy, fused_plan.machine), progress=progress)
        return Numbers(name, result.devices * result.elements, result.error if plan.exchange.adds else None)

    def tasks(self, plan: Plan) -> dict[Kernel, KernelTask]:
        """Return the simulations that a sub-layer needs, each as a task that others may share."""
        return {kernel: kernel_task(kernel, plan.machine, plan.workload, plan.seed)
                for name in self.techniques for kernel in techniques.kernels_of(name, plan)}

    def answer(self, results: Sequence[RunResult]) -> RunResult | FileRun:
        """Return the answer of all sub-layers' results."""
        return FileRun(tuple(zip(self.times, results))) if self.of_file else results[0]


def check_operator(scenario: Scenario) -> None:
    """Refuse an operator that is none, and keys that another one has. Raises BadInput."""
    layer, keys = scenario.layer, scenario.changes()
    if fused_collective(layer.operator) is None and not is_alone(layer):
        raise BadInput(f"layer.operator = {layer.operator!r} is unknown: allowed are "
                       f"{choices(layer.operator, OPERATORS)}")
    of_experts = fused_collective(layer.operator) in EXPERTS
    if "layer.experts" in keys and not of_experts:
        raise BadInput(f"{setting('layer.experts', layer.experts)} is for layer.operator = moe-dispatch and "
                       "moe-combine")
    for key in ("layer.embedding", "layer.locality"):
        experts_locality = of_experts and key == "layer.locality"
        if key in keys and not layer.operator.startswith("embedding") and not experts_locality:
            raise BadInput(f"{setting(key, keys[key])} is for layer.operator = embedding and embedding-a2a")
    if layer.kernel is None:
        return
    kernel = setting("layer.kernel", layer.kernel)
    if layer.operator != "gemm-rs" or layer.gemm is not None:
        raise BadInput(f"{kernel} defines its own operator: neither layer.operator nor layer.gemm goes with it")
    if layer.split_k is not None:
        raise BadInput(f"{setting('layer.split_k', layer.split_k)} does not go with {kernel}, which says what its "
                       "parts are")


def layer_request(scenario: Scenario, policy: str | None = None) -> LayerRequest:
    """Return what is simulated for a scenario of the cycle level. Raises BadInput, before any work.

    `policy`: the arbiters' under whichever technique, if it is not the techniques' own.
    """
    check_keys(scenario, "layer")
    check_operator(scenario)
    layer, section, flux = scenario.layer, scenario.exchange, scenario.flux
    workloads_and_counts, notes = workloads_of(layer, scenario.seed)
    workloads_and_counts = [(fraction_of_tokens(workload, scenario), count) for workload, count in workloads_and_counts]
    names = BY_DEFAULT if scenario.techniques is None else scenario.techniques
    check_techniques(names)
    check_policy(scenario.t3.policy, names)
    check_skew(scenario)
    machine = machine_of(scenario)
    notes += check_limits(scenario, machine, {policy} if policy else {
        policy_of(name, scenario.t3.policy) for name in names if name in FUSIONS})
    _check_sections(scenario, names)
    exchange = exchange_of(scenario, workloads_and_counts[0][0].dtype)
    for workload, _ in workloads_and_counts:
        machine.gpu.matrix_rate(workload.format.bytes)
    workloads = [with_its_kernel(machine, workload, workload.tp if exchange.of_parts else 1)
                 for workload, _ in workloads_and_counts]
    if flux.pieces is not None and (not exchange.before or exchange.of_experts):
        raise BadInput(f"{setting('flux.pieces', flux.pieces)} cuts what an all-gather brings: it needs "
                       "layer.operator = ag-gemm")
    if flux.tune and (flux.pieces is not None or flux.order != FluxOptions().order):
        raise BadInput("flux.tune = true tries all choices: neither flux.order nor flux.pieces goes with it")
    for workload in workloads:
        exchange.links(workload.tp)
        if exchange.custom:  # a user's functions fail before any work
            exchange.program(workload.tp)
        exchange.check_sums(section.sums, workload, machine.gpu.k_parts)
    fused = (*FUSIONS, "fused-wg")
    if exchange.sums.accumulate and not set(FUSIONS) & set(names):
        raise BadInput(f"{setting('exchange.accumulate', section.accumulate)} is for {', '.join(FUSIONS)}, of which "
                       f"{setting('techniques', names)} names none")
    for key, value in (("exchange.signal", section.signal),
                       ("exchange.algorithm", None if section.algorithm == "ring" else section.algorithm)):
        if value and not exchange.of_parts and not set(fused) & set(names):
            raise BadInput(f"{setting(key, value)} is for {', '.join(fused)}, of which {setting('techniques', names)} "
                           "names none")
    plans = tuple(_plan(scenario, exchange, machine, workload) for workload in workloads)
    if layer.values:
        check_numbers(plans, names)
    for plan in plans:
        if plan.skew is not None:
            plan.skew.check(exchange.links(plan.workload.tp), machine)
    if "decomposed" in names:
        units_left(machine.gpu.compute_units, scenario.decomposed.communication_units)
    for plan in plans:
        check_split_k(plan.machine, exchange, names)
        for name in names:
            TECHNIQUES[name].kernels_of(plan)
    return LayerRequest(scenario, tuple(names), plans, tuple(count for _, count in workloads_and_counts), tuple(notes))


def check_numbers(plans: Sequence[Plan], names: Sequence[str]) -> None:
    """Refuse outputs that are too large to carry numbers, and techniques that carry none. Raises BadInput."""
    if not set(FUSIONS) & set(names):
        raise BadInput(f"layer.values = true is for {', '.join(FUSIONS)}, of which {setting('techniques', names)} "
                       "names none")
    for plan in plans:
        (rows, columns), gpus = plan.exchange.exchanged(plan.workload), plan.workload.tp
        if (elements := rows * columns * gpus) > _MOST_NUMBERS:
            raise BadInput(f"layer.values = true: {gpus} GPUs of {rows:,} x {columns:,} are {elements:,} numbers: at "
                           f"most {_MOST_NUMBERS:,} are compared")
    for plan in plans:
        if plan.exchange.sums.wire in BLOCKS:
            raise BadInput(f"exchange.wire = {plan.exchange.sums.wire}: layer.values = true carries numbers of 16 and "
                           "32 bits on links")


def exchange_of(scenario: Scenario, dtype: str) -> Exchange:
    """Return the collective of a scenario whose elements have a format. Raises BadInput."""
    section = scenario.exchange
    return fused_with(scenario.layer.operator, section.topology, section.algorithm, section.signal,
                      sums_of(section.accumulate, section.wire, dtype))


def machine_of(scenario: Scenario) -> Machine:
    """Return the machine of a scenario of the cycle level. Raises MachineError."""
    machine = with_split_k(load_machine(scenario.machine), scenario.layer.split_k)
    if machine.dram.request_bytes != LINE_BYTES:
        raise BadInput(f"{machine.name}: [dram] scheduler = {machine.dram.scheduler} has requests of one column, "
                       f"column_bytes = {machine.dram.column_bytes}: a run needs fr_fcfs, or {LINE_BYTES} bytes")
    return fraction_of(machine, scenario.parts)


def fraction_of_tokens(workload: Workload, scenario: Scenario) -> Workload:
    """Return what a scenario's fraction of a GPU computes. Raises BadInput for tokens that have no such part."""
    if workload.m % scenario.parts:
        raise BadInput(f"{setting('fraction', scenario.fraction)}: {workload.m} tokens have no such part")
    return replace(workload, m=workload.m // scenario.parts)


def check_techniques(names: Sequence[str]) -> None:
    """Raise BadInput for an unknown technique."""
    for name in names:
        if name not in TECHNIQUES:
            raise BadInput(f"techniques = {name!r} is unknown: allowed are {', '.join(TECHNIQUES)}")


def check_policy(name: str | None, names: Sequence[str] = ("t3",)) -> None:
    """Raise BadInput for a policy that the hardware does not have, or without technique `t3`, which takes it."""
    if name is not None and name not in POLICIES:
        raise BadInput(f"t3.policy = {name!r} is unknown: allowed are {choices(name, POLICIES)}")
    if name is not None and "t3" not in names:
        raise BadInput(f"{setting('t3.policy', name)} is for technique t3: it needs {setting('techniques', 't3')}")


def check_limits(scenario: Scenario, machine: Machine, policies: Collection[str]) -> list[str]:
    """Refuse limits of arbitration that a scenario says and none of its policies has; of a machine's file, say so.

    A machine serves all techniques, so its own limits may be another's. Raises BadInput.
    """
    scenario_limits = scenario.machine.get("arbiter", {}) if isinstance(scenario.machine, Mapping) else {}
    notes = []
    for name, has_limit in (("starvation_limit_cycles", any(POLICIES[policy].ends_starvation for policy in policies)),
                            ("threshold", any(POLICIES[policy].has_threshold for policy in policies))):
        value = getattr(machine.arbiter, name)
        if has_limit or not policies or value in ("derived", "auto"):
            continue
        policy_names = " and ".join(sorted(policies))
        if name in scenario_limits:
            policies_with_limit = [policy.name for policy in POLICIES.values() if (
                policy.ends_starvation if name == "starvation_limit_cycles" else policy.has_threshold)]
            raise BadInput(f"machine.arbiter.{name} = {value} has no effect under {policy_names}: it is of "
                           f"{', '.join(policies_with_limit)}")
        notes.append(f"{machine.name}: [arbiter] {name} = {value} has no effect under {policy_names}")
    return notes


def check_skew(scenario: Scenario) -> None:
    """Refuse a skew without every GPU, and one that says nothing. Raises BadInput."""
    gpus = scenario.gpus
    if gpus.skew is not None and not gpus.every:
        raise BadInput(f"{setting('gpus.skew', gpus.skew)} needs gpus.every = true: a representative GPU is "
                       "like the others")
    if gpus.skew == "":
        raise BadInput("gpus.skew = '' is empty: late:GPU:NS, clock:GPU:SHARE, dead:GPU:UNITS or link:FROM-TO:GB/S, "
                       "for example late:3:20000")


def _check_sections(scenario: Scenario, names: Sequence[str]) -> None:
    """Refuse keys of techniques that are not run."""
    keys = scenario.changes()
    for key, technique in _TECHNIQUE_OF_KEY.items():
        if key in keys and technique not in names:
            raise BadInput(f"{setting(key, keys[key])} is for technique {technique}: it needs "
                           f"{setting('techniques', technique)}")


def _plan(scenario: Scenario, exchange: Exchange, machine: Machine, workload: Workload) -> Plan:
    flux, gpus = scenario.flux, scenario.gpus
    options = tuned(exchange.before, workload.m // workload.tp) if flux.tune else (
        FluxOptions(flux.order, 1 if flux.pieces is None else flux.pieces),)
    skew = Skew.of(gpus.skew or "", workload.tp) if gpus.every else None
    return Plan(exchange.hardware(machine, workload), workload, scenario.seed, exchange, scenario.t3.policy, skew,
                {"decomposed": scenario.decomposed.communication_units, "flux": options})
