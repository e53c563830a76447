"""Common options of the testbenches' and campaigns' commands: the blocks to run, and where the report goes."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """End the program with this line alone."""
        self.exit(2, f"{self.prog}: {message}\n")


def block_parser(module: str, doc: str, blocks: Iterable[str], report: Path | None = None) -> argparse.ArgumentParser:
    """Make a parser of blocks and, with a report, `--json`.

    `doc`: the module's docstring, whose first part is the description.
    """
    parser = _Parser(prog=f"python -m {module}", description=doc.split(":")[0] + ".")
    parser.add_argument("blocks", nargs="*", metavar="block", help=f"all without it; {', '.join(blocks)}")
    if report is not None:
        parser.add_argument("--json", type=Path, default=report, metavar="FILE", help=f"default: {report}")
    return parser


def chosen_blocks(parser: argparse.ArgumentParser, options: argparse.Namespace, blocks: Iterable[str],
                  what: str = "no block") -> list[str]:
    """Return the blocks that were named, or all.

    Ends the program with one line if there is `what` of that name.
    """
    known = list(blocks)
    for block in options.blocks:
        if block not in known:
            parser.error(f"there is {what} {block!r}; the blocks are {', '.join(known)}")
    return options.blocks or known
