"""All subcommands under the one name `t3`, with what their help pages and options have in common."""

import functools
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import Exit

from t3sim.base.extras import needs
from t3sim.base.streams import Trimmed
from t3sim.commands.options import check_outputs

#: In the order of the help. Each is a function of this name in a module of this name.
COMMANDS = ("run", "kernel", "techniques", "trace", "explain", "step", "reproduce", "sweep", "compare", "collective",
            "dma", "end-to-end", "bench", "overlap", "validate", "calibrate", "hbm-replay", "verilog", "export",
            "registers", "machines", "area", "cache")


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
    """All of `t3`; only the command that is called is imported, and the help imports all."""

    def list_commands(self, ctx):
        return list(COMMANDS)

    def get_command(self, ctx, cmd_name):
        return command_of(cmd_name) if cmd_name in COMMANDS else None


def function_of(command: str) -> Callable:
    """Return the function that runs a command."""
    name = command.replace("-", "_")
    return getattr(import_module(f"t3sim.commands.{name}"), name)


@functools.cache
def command_of(command: str) -> TyperCommand:
    """Return a command with its options, built once for all calls of a process."""
    only = typer.Typer(add_completion=False, rich_markup_mode="rich")
    only.command(command, cls=_Command, epilog=needs(command).replace("[", "\\[") or None)(function_of(command))
    return typer.main.get_command(only)


app = typer.Typer(
    name="t3", cls=_Group, pretty_exceptions_enable=False, rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="T3's Track & Trigger hardware as RTL, co-simulated with models of the surrounding GPUs.")


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
    """Return `t3` itself, built once for all calls of a process."""
    whole = typer.main.get_command(app)
    whole.commands = dict.fromkeys(COMMANDS)  # names for suggestions; `get_command` has the rest
    return whole


def in_options_of(command: str, message: str) -> str:
    """Write a message's keys as the options of a command."""
    from t3sim.commands.flags import in_options

    parameters = command_of(command).params if command in COMMANDS else ()
    return in_options(message, own_options=[one.opts[0] for one in parameters if one.opts[0].startswith("--")])
