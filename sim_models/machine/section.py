"""What every section of a machine file has in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """Frozen; unknown keys, text for numbers, NaN and infinity are refused. No defaults: numbers live in the TOML
    files, each beside its source."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


Count = Annotated[int, Field(ge=1, le=1 << 40)]
Positive = Annotated[float, Field(gt=0, le=1e12)]
NotNegative = Annotated[float, Field(ge=0, le=1e12)]
Share = Annotated[float, Field(gt=0, le=1)]
