"""All subcommands under the one name `t3`, with what their help pages and options have in common."""

import functools
import sys
from contextlib import redirect_stdout
from pathlib import Path

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import Exit

from t3sim.base.extras import needs
from t3sim.base.trimmed import Trimmed
from t3sim.commands.area import area
from t3sim.commands.bench import bench
from t3sim.commands.cache import cache
from t3sim.commands.calibrate import calibrate
from t3sim.commands.collective import collective
from t3sim.commands.compare import compare
from t3sim.commands.dma import dma
from t3sim.commands.end_to_end import end_to_end
from t3sim.commands.explain import explain
from t3sim.commands.export import export
from t3sim.commands.flags import in_options
from t3sim.commands.hbm_replay import hbm_replay
from t3sim.commands.kernel import kernel
from t3sim.commands.machines import machines
from t3sim.commands.options import check_outputs
from t3sim.commands.overlap import overlap
from t3sim.commands.registers import registers
from t3sim.commands.reproduce import reproduce
from t3sim.commands.run import run
from t3sim.commands.step import step
from t3sim.commands.sweep import sweep
from t3sim.commands.techniques import techniques
from t3sim.commands.trace import trace
from t3sim.commands.validate import validate
from t3sim.commands.verilog import verilog

COMMANDS = {"run": run, "kernel": kernel, "techniques": techniques, "trace": trace, "explain": explain, "step": step,
            "reproduce": reproduce, "sweep": sweep, "compare": compare, "collective": collective, "dma": dma,
            "end-to-end": end_to_end, "bench": bench, "overlap": overlap, "validate": validate, "calibrate": calibrate,
            "hbm-replay": hbm_replay, "verilog": verilog, "export": export,
            "registers": registers, "machines": machines, "area": area, "cache": cache}


def _quiet_flags(parameters: list) -> list:
    """Return the parameters, without the name of a value after a flag in the help."""
    for parameter in parameters:
        if getattr(parameter, "is_bool_flag", False):
            parameter.metavar = ""
    return parameters


class _Help:
    """Look of a command's help page."""

    def get_params(self, ctx):
        return _quiet_flags(super().get_params(ctx))

    def format_help(self, ctx, formatter):
        with redirect_stdout(sys.stdout if sys.stdout.isatty() else Trimmed(sys.stdout)):
            super().format_help(ctx, formatter)


class _Command(_Help, TyperCommand):
    def invoke(self, ctx):
        outputs = {parameter.opts[0]: str(value) for parameter in self.params
                   if isinstance(value := ctx.params.get(parameter.name), str | Path)}
        check_outputs(outputs)
        return super().invoke(ctx)


class _Group(_Help, TyperGroup):
    pass


app = typer.Typer(
    name="t3", cls=_Group, pretty_exceptions_enable=False, rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="T3's Track & Trigger hardware as real RTL, co-simulated with models of the GPUs around it.")
for _name, _function in COMMANDS.items():
    app.command(_name, cls=_Command, epilog=needs(_name).replace("[", "\\[") or None)(_function)


def _print_version(wanted: bool) -> None:
    if wanted:
        from t3sim.base.output import collect_versions

        print(f"t3sim {collect_versions()['t3sim']}")
        raise Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_print_version, help="Show the version."),
) -> None:
    pass


@functools.cache
def group() -> TyperGroup:
    """Return the whole of `t3`, built once for all calls of a process."""
    return typer.main.get_command(app)


def in_options_of(command: str, message: str) -> str:
    """Write a message's keys as the options of a command."""
    parameters = group().commands[command].params if command in COMMANDS else ()
    return in_options(message, own=[one.opts[0] for one in parameters if one.opts[0].startswith("--")])
