"""Reasons why a command waits before its work begins, said once: what is compiled, that it is kept, about how long."""

import sys
from functools import cache


@cache
def say(what: str, about: str) -> None:
    """Say on standard error what is being compiled and about how long that takes, the first time in a process."""
    print(f"t3: compiling {what}: {about}, once (it is kept)", file=sys.stderr, flush=True)
