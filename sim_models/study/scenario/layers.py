"""Layers of a scenario: what its GPUs compute."""

from dataclasses import replace
from pathlib import Path

from t3sim.base.bounded import read_json, reading
from t3sim.base.custom import is_custom
from t3sim.base.errors import BadInput, shown
from t3sim.study.scenario.kinds import is_alone
from t3sim.study.scenario.scenario import Layer, setting
from t3sim.workload import workloads
from t3sim.workload.interchange.chakra import chakra_workloads
from t3sim.workload.interchange.config import TOKENS, config_experts, config_workloads, lacking
from t3sim.workload.locality import zipf_exponent
from t3sim.workload.model_file import load_transformer
from t3sim.workload.transformer import PRESETS, TODAY
from t3sim.workload.workloads import Workload, behind_all_gather, gemm_workload, transformer_workload

_SMALL = ("gemv-ar", "embedding-a2a")  #: fused operators that compute no GEMM
_OF_EXPERTS = ("moe-dispatch", "moe-combine")


def of_file(layer: Layer) -> bool:
    """Say whether a trace, or a model of which more is known than T3's table has, names the layers: often several."""
    return layer.chakra is not None or _is_described(layer.model or "")


def _is_described(model: str) -> bool:
    """Say whether it is a Hugging Face config.json, or a model whose file is known here."""
    return model.endswith(".json") or model in TODAY


def workloads_of(layer: Layer, seed: int) -> tuple[list[tuple[Workload, int]], list[str]]:
    """Return what a layer's kernels compute and how often a file has each; and notes on what a file says.

    Raises BadInput for keys that contradict each other.
    """
    if layer.workload is not None:
        workloads_and_counts, notes = [(layer.workload, 1)], []
    elif layer.operator in _OF_EXPERTS and layer.model is not None:
        workloads_and_counts, notes = _of_a_models_experts(layer, layer.model, seed)
    elif layer.operator in (*_SMALL, *_OF_EXPERTS) or is_custom(_producer(layer)):
        refuse(layer, ("model", "sublayer", "tp", "tokens", "chakra"),
               f" does not go with {setting('layer.operator', layer.operator)}")
        workloads_and_counts, notes = [(small_workload(layer, seed), 1)], []
    elif layer.chakra is not None:
        workloads_and_counts, notes = _of_a_trace(layer)
    elif _is_described(layer.model or ""):
        workloads_and_counts, notes = _of_a_config(layer)
    else:
        workload = _workload(layer)
        workloads_and_counts = [(workload, 1)]
        notes = [str(PRESETS[workload.model])] if workload.model in PRESETS else []
    if _is_described(layer.model or ""):
        notes = [*notes, *(f"{workload.sublayer} (M x N x K): {workload.m:,} x {workload.n:,} x {workload.k:,} on a "
                           f"GPU, {count} times" for workload, count in workloads_and_counts)]
    return [(in_format(workload, layer.dtype), count) for workload, count in workloads_and_counts], notes


def in_format(workload: Workload, dtype: str | None) -> Workload:
    """Return the same workload with elements of another format, its own if none is said."""
    return workload if dtype is None else replace(workload, dtype=dtype)


def small_workload(layer: Layer, seed: int) -> Workload:
    """Return what the kernels that `gemm` or `embedding` describe compute; on one GPU if they are alone.

    Raises BadInput.
    """
    operator, alone = layer.operator, is_alone(layer)
    devices = None if alone else layer.devices
    if devices is None and not alone:
        raise BadInput(f"{setting('layer.operator', operator)} needs layer.devices = N")
    if operator.startswith("embedding"):
        if layer.embedding is None or layer.gemm is not None:
            raise BadInput(f"{setting('layer.operator', operator)} needs layer.embedding = BATCHxTABLES, and no "
                           "layer.gemm")
        locality = "uniform" if layer.locality is None else layer.locality
        return workloads.embedding_workload(layer.embedding, devices or 2, locality, seed, alone=alone)
    if operator in _OF_EXPERTS and layer.experts is None:
        raise BadInput(f"{setting('layer.operator', operator)} needs layer.experts = EXPERTSxCHOSEN")
    if layer.gemm is None:
        raise BadInput(f"{setting('layer.operator', operator)} needs layer.gemm = "
                       f"{'Mx1xK' if operator.startswith('gemv') else 'MxNxK'}")
    if is_custom(producer := operator if alone else _producer(layer)):
        return workloads.custom_workload(producer, layer.gemm, devices or 2)
    if layer.experts is not None:
        return _experts(layer, layer.gemm, devices or 2, layer.experts, seed)
    make = {"gemm": gemm_workload, "decode": workloads.decode_workload}.get(operator, workloads.gemv_workload)
    return make(layer.gemm, devices or 2)  # K is that of one device


def _experts(layer: Layer, shape: str, devices: int, experts: str, seed: int) -> Workload:
    """Return the experts' GEMM, whose tokens' experts are drawn, or a file has how many go where. Raises BadInput."""
    first = layer.operator == "moe-dispatch"
    locality = "uniform" if layer.locality is None else layer.locality
    if (zipf := zipf_exponent(locality)) is not None:
        return workloads.experts_workload(shape, devices, experts, zipf, seed, first=first)
    with reading(f"layer.locality = {shown(locality)}", "a routing: uniform, zipf:EXPONENT, or a JSON file"):
        return workloads.experts_workload(shape, devices, experts, given=tuple(map(tuple, read_json(Path(locality)))),
                                          first=first)


def _producer(layer: Layer) -> str:
    """Return what makes the output, `gemm` of `gemm-rs`."""
    return layer.operator.rpartition("-")[0]


def refuse(layer: Layer, keys: tuple[str, ...], why: str) -> None:
    """Refuse keys of a layer. Raises BadInput for the first that is there."""
    for key in keys:
        if (value := getattr(layer, key)) is not None:
            raise BadInput(f"{setting(f'layer.{key}', value)}{why}")


def _of_a_trace(layer: Layer) -> tuple[list[tuple[Workload, int]], list[str]]:
    trace = setting("layer.chakra", layer.chakra)
    if layer.operator == "ag-gemm":
        raise BadInput(f"{setting('layer.operator', layer.operator)} does not go with {trace}: the GEMMs of a trace "
                       "are found by what follows them")
    refuse(layer, ("model", "sublayer", "gemm", "devices", "tokens"),
           f" does not go with {trace}: give a model or a trace")
    if layer.tp is None:
        raise BadInput(f"{trace} needs layer.tp = N: a trace is of one rank")
    skipped: list[str] = []
    trace_workloads = chakra_workloads(layer.chakra, layer.tp, layer.operator, skipped)
    return [(use.workload, use.count) for use in trace_workloads], skipped + [
        f"found: {use.gemm}, {use.workload.size} {use.workload.dtype}, then {use.collective}; {use.count} times"
        for use in trace_workloads]


def _of_a_models_experts(layer: Layer, model: str, seed: int) -> tuple[list[tuple[Workload, int]], list[str]]:
    refuse(layer, ("gemm", "devices", "experts", "sublayer", "chakra"), " does not go with "
           f"{setting('layer.model', model)} and {setting('layer.operator', layer.operator)}, which say it")
    experts = config_experts(model, TOKENS if layer.tokens is None else layer.tokens, layer.operator == "moe-dispatch")
    workload = _experts(layer, experts.gemm, 8 if layer.tp is None else layer.tp, experts.experts, seed)
    words = lacking(model) if layer.dtype is None else None
    return [(replace(workload, model=experts.model, dtype=experts.dtype), experts.times)], [
        str(load_transformer(model)), *([words] if words else [])]


def _of_a_config(layer: Layer) -> tuple[list[tuple[Workload, int]], list[str]]:
    refuse(layer, ("gemm", "devices"),
           f" does not go with {setting('layer.model', layer.model)}: give a model or a GEMM")
    workloads_and_counts = config_workloads(layer.model, 8 if layer.tp is None else layer.tp,
                                            TOKENS if layer.tokens is None else layer.tokens, layer.sublayer)
    if layer.operator == "ag-gemm":
        workloads_and_counts = [(behind_all_gather(workload), count) for workload, count in workloads_and_counts]
    note = lacking(layer.model) if layer.dtype is None else None
    return workloads_and_counts, [str(load_transformer(layer.model)), *([note] if note else [])]


def _workload(layer: Layer) -> Workload:
    """Return the sub-layer of a model of the T3 paper, or a custom GEMM."""
    if layer.tokens is not None:
        raise BadInput(f"{setting('layer.tokens', layer.tokens)} is for a config.json and models of today: those of "
                       "the T3 paper have their own")
    if layer.gemm is not None:
        refuse(layer, ("model", "sublayer", "tp"),
               f" does not go with {setting('layer.gemm', layer.gemm)}: give a model or a GEMM, not both")
        if layer.devices is None:
            raise BadInput(f"{setting('layer.gemm', layer.gemm)} needs layer.devices = N")
        return gemm_workload(layer.gemm, layer.devices)
    if layer.devices is not None:
        raise BadInput(f"{setting('layer.devices', layer.devices)} goes with layer.gemm only: for a model give "
                       "layer.tp")
    gathers = layer.operator == "ag-gemm"
    keys = {"model": layer.model, "sublayer": "fc1" if gathers and layer.sublayer is None else layer.sublayer,
            "tp": layer.tp}
    workload = transformer_workload(**{name: value for name, value in keys.items() if value is not None})
    return behind_all_gather(workload) if gathers else workload
