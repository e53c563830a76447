"""Base of every section of a machine file."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A section of a machine file. Unknown keys, text for numbers, NaN and infinity are refused.

    It is frozen and has no defaults: numbers live in the TOML files, each beside its source.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def within(low: float, high: float) -> Any:
    """Limit a number, both limits included: `Annotated[int, within(1, 64)]`."""
    return Field(ge=low, le=high)


# For closed forms, which no value makes slow. What is simulated needs limits of its own.
Count = Annotated[int, within(1, 1 << 40)]
Positive = Annotated[float, within(1e-9, 1e12)]  # what is less takes longer than anybody waits
NotNegative = Annotated[float, within(0, 1e12)]
Share = Annotated[float, Field(gt=0, le=1)]

#: One wait: a hundred times a network's across a data centre, and short enough that at the fastest memory clock no run
#: takes it for a standstill (`engine.end.IDLE_LIMIT`).
Wait = Annotated[float, within(0, 10_000)]
