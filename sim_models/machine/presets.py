"""Descriptions of one file: a preset that comes with the package, or a TOML file of the same keys."""

import tomllib
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from t3sim.bounded import LARGEST_MACHINE, TooLarge, read_bounded
from t3sim.errors import BadInput
from t3sim.errors import shown as repr_of
from t3sim.machine.section import Section


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with what `changes` has, section by section."""
    found = dict(base)
    for name, value in changes.items():
        there = found.get(name)
        found[name] = _merged(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
    return found


_Described = TypeVar("_Described", bound=Section)


def load_preset(kind: type[_Described], name_or_path: str, folder: Traversable, presets: Sequence[str],
                others: Sequence[str] = (), error: type[BadInput] = BadInput,
                defaults: dict[str, Any] | None = None) -> _Described:
    """Return the description of that name in `folder`, or of that file.

    A file may extend a preset, and then has only what differs.

    `others`: names that `--machine` takes besides. Raises `error` with the file, the key, its value and what is
    allowed.
    """
    shown = repr(name_or_path if len(name_or_path) <= 60 else name_or_path[:57] + "...")
    try:
        source = folder.joinpath(f"{name_or_path}.toml") if name_or_path in presets else Path(name_or_path)
        content = tomllib.loads(read_bounded(source, LARGEST_MACHINE).decode())
        if (base := content.pop("extends", None)) is not None:
            if base not in presets:
                raise error(f"--machine {shown}: extends = {repr_of(base)}: allowed are {', '.join(presets)}")
            whole = tomllib.loads(folder.joinpath(f"{base}.toml").read_text("utf-8"))
            content = _merged(whole, content)
        return kind.model_validate({**(defaults or {}), **content})
    except BadInput:
        raise
    except FileNotFoundError:
        raise error(f"--machine {shown} is neither a file nor one of {', '.join((*presets, *others))}") from None
    except ValidationError as refused:
        fault = refused.errors(include_url=False)[0]
        raise error(f"--machine {shown}: {'.'.join(map(str, fault['loc']))} = {str(fault.get('input'))[:40]}: "
                    f"{fault['msg'][0].lower()}{fault['msg'][1:]}") from None
    except OSError as refused:
        raise error(f"--machine {shown} cannot be read: {refused.strerror}") from None
    except TooLarge as refused:
        raise error(f"--machine {shown} is not a description of a machine: {refused}") from None
    except RecursionError:
        raise error(f"--machine {shown} is not TOML: it is nested too deeply") from None
    except ValueError as refused:
        raise error(f"--machine {shown} is not TOML: {str(refused)[:80]}") from None
