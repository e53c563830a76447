"""The two ways in which a command ends early. The command line prints one line for each, without a traceback."""


class BadInput(ValueError):
    """What the user asked for cannot be. The message names the option or key, its value, and what is allowed."""


class Failure(RuntimeError):
    """The input was fine, but the work could not be done (a missing compiler, a failed self-check)."""
