"""The two ways in which a command ends early. The command line prints one line for each, without a traceback."""

import difflib
import re
import reprlib
from collections.abc import Iterable

_LONGEST_WORD = 100  #: letters of a name or a value that a message repeats whole

_LONG = re.compile(rf"'[^']{{{_LONGEST_WORD},}}'|\"[^\"]{{{_LONGEST_WORD},}}\"|\S{{{_LONGEST_WORD},}}")


class BadInput(ValueError):
    """The user asked for something impossible. The message names the key, its value, and what is allowed.

    A key with its value is written `layer.tp = 8`; the command line puts the option in its place, `--tp 8`.
    """


class InFile(BadInput):
    """A fault in the words of a file: no option of the command line stands for them."""


class Ended(SystemExit):
    """A worker's process was told to end; a user's code that calls `sys.exit` raises what is not this."""


class Failure(RuntimeError):
    """The input was fine, but the work could not be done (a missing compiler, a failed self-check)."""


#: Exceptions of this package are messages for the user; all others are faults of the program.
_OWN_PACKAGE = "t3sim"


def is_ours(error: BaseException) -> bool:
    """Say whether an exception is a message for the user."""
    return type(error).__module__.split(".")[0] == _OWN_PACKAGE


def said_by(error: BaseException) -> str:
    """Return an exception's message in one line; one whose own code fails says nothing."""
    try:
        return " ".join(str(error).split())
    except Exception:
        return ""


def printable(text: str) -> str:
    """Return text from outside with what would steer a terminal written out: `\\x1b`. Lines and blanks stay."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1] for letter in text)


def shortened(message: str) -> str:
    """Return the message with the middle of every very long word or quotation left out."""
    return _LONG.sub(lambda found: f"{found[0][:40]}...{found[0][-20:]} ({len(found[0]):,} characters)", message)


_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 60


def shown(value: object) -> str:
    """Return the value as a message repeats it: like `repr`, but never long."""
    return _repr.repr(value)


def choices(value: str, allowed: Iterable[str]) -> str:
    """Say what is allowed instead of `value`, for a message: everything, or of a long list what comes close to it."""
    allowed = list(allowed)
    every = ", ".join(allowed)
    if len(every) <= 130:
        return every
    some = difflib.get_close_matches(value, allowed, n=3) or allowed[:8]
    return f"{', '.join(some)} and {len(allowed) - len(some)} more"


def named_once(setting: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a setting lists. Raises BadInput for one that is listed twice."""
    names = tuple(names)
    for index, name in enumerate(names):
        if name in names[:index]:
            raise BadInput(f"{setting} names {shown(name)} twice: once is enough")
    return names
