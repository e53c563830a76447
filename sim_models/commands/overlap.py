"""`t3 overlap`: which mechanism hides a model's collectives on GPUs that are sold, why, and how wrong that may be."""

import sys
from typing import Annotated

import typer

from t3sim.commands.options import JsonOption, file_name, whole_number
from t3sim.errors import BadInput, printable, shown

_MOST_TOKENS = 1 << 20
_DTYPES = ("bf16", "fp16", "fp8", "fp4")


def overlap(
    model: Annotated[str, typer.Option(
        metavar="NAME|FILE", help="llama-3.3-70b, qwen2.5-72b, mixtral-8x22b, ..., a Transformer of `t3 end-to-end`, "
        "or a Hugging Face config.json.")] = "llama-3.3-70b",
    machine: Annotated[str, typer.Option(
        "--machine", metavar="NAME|FILE", parser=file_name, help="h100-sxm, gb200, mi300x, a100-sxm, ..., or a TOML "
        "file.")] = "h100-sxm",
    tp: Annotated[int, typer.Option(metavar="N", parser=whole_number, help="GPUs that share each layer.")] = 8,
    tokens: Annotated[int, typer.Option(metavar="N", parser=whole_number, help="Of a prompt.")] = 8192,
    sequence_parallel: Annotated[bool, typer.Option(
        "--sequence-parallel", help="Reduce-scatters after and all-gathers before GEMMs, no all-reduces.")] = False,
    dtype: Annotated[str | None, typer.Option(
        metavar="NAME", help="Of the GEMMs' operands, where the machine has a rate: bf16, fp16, fp8 or fp4. What is "
        "exchanged has 16 bits.", show_default="bf16")] = None,
    json: JsonOption = None,
) -> None:
    """Rank the mechanisms that hide a layer's collectives, with what bounds each, and Track & Trigger beside them."""
    from t3sim.end_to_end.transformer import load_transformer
    from t3sim.libraries.gemm import width_of
    from t3sim.libraries.mechanisms import GATES
    from t3sim.libraries.prompts import model_of
    from t3sim.libraries.ranking import rank
    from t3sim.machine.levels import load_commercial
    from t3sim.study.report import output_console, print_table
    from t3sim.support.output import check_json_target, write_json
    from t3sim.validation.comparison import expected_error

    transformer, node = model_of(model) or load_transformer(model), load_commercial(machine)
    if not 2 <= tp <= node.gpus or transformer.heads % tp:
        raise BadInput(f"--tp {tp} is not possible: 2 to {node.gpus} GPUs of {node.name} that divide the "
                       f"{transformer.heads} heads of {transformer.name}")
    least = tp if sequence_parallel else 1
    if not least <= tokens <= _MOST_TOKENS:
        raise BadInput(f"--tokens {tokens} is not possible: {least} to {_MOST_TOKENS}")
    if dtype not in (None, *_DTYPES):
        raise BadInput(f"--dtype {shown(dtype)} is unknown: allowed are {', '.join(_DTYPES)}")
    width = width_of(dtype or "bf16")
    check_json_target(json)
    ranked, wrong = rank(node, transformer, tokens, tp, sequence_parallel, width), expected_error(node.name)
    if json is not None:
        write_json({"model": transformer.name, "machine": node.name, "tp": tp, "tokens": tokens, "width": width,
                    "ranking": [one.to_json() for one in ranked], "expected_error": wrong}, json)
    if dtype is None and transformer.dtype not in ("", "bfloat16", "float16"):
        print(printable(f"t3: {transformer.name} is in {transformer.dtype}; its GEMMs are taken in bf16 (--dtype)"),
              file=sys.stderr)
    if json == "-":
        return
    console = output_console()
    in_turn = next(one for one in ranked if one.mechanism == "in-turn").ns
    print_table(f"GEMMs with their collectives of a layer of {transformer.name}, {tokens:,} tokens, {width}, on {tp} "
                f"GPUs of {node.name}",
                ("mechanism", "µs", "than\nin turn", "bound by", "units\nheld", "MB in\nmemory", "gates"),
                [(one.mechanism, f"{one.ns / 1e3:,.1f}", f"{1 - one.ns / in_turn:+.1%}", one.bound, f"{one.units}",
                  f"{one.memory_bytes / (1 << 20):,.0f}", f"{GATES:,}" if one.mechanism == "t3" else "0")
                 for one in ranked], console)
    if any(one.mechanism == "fused-norm" for one in ranked):
        console.print("fused-norm is less the RMSNorm that the others leave to a kernel of its own. Memory: what the "
                      "collectives move.")
    if wrong is None:
        console.print(f"No measured row of {node.name} says how wrong this may be.")
    else:
        console.print(f"Expected error, over {wrong['rows']} measured rows of {node.name} that gave no constant: "
                      f"{wrong['mean_abs_error']:.0%} on average, {wrong['worst']:.0%} at worst. Track & Trigger is "
                      "hardware that nobody has built: no row checks its line.")
