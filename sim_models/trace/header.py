"""What trace.json must hold before anything reads it: every field of the type and size that its readers count on."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .schema import NAMES

_Count = Annotated[int, Field(ge=0, le=1 << 48)]
_Size = Annotated[int, Field(ge=1, le=1 << 24)]
_Text = Annotated[str, Field(max_length=1000)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Geometry(_Part):
    channels: Annotated[int, Field(ge=1, le=1024)]
    queue_entries: _Size
    sets: _Size
    ways: Annotated[int, Field(ge=1, le=64)]
    banks: Annotated[int, Field(ge=1, le=64)]
    engines: Annotated[int, Field(ge=1, le=64)]
    compute_units: _Size | None = None


class _Filter(_Part):
    kinds: list[Literal[*NAMES]] | None
    channels: list[_Count] | None
    wgs: list[_Count] | None


class _Recorded(_Part):
    first: _Count = Field(alias="from")
    until: _Count
    complete_until: _Count
    cycles_of_run: _Count
    outcome: _Text
    problem: Annotated[str, Field(max_length=100_000)] | None
    dropped: _Count
    gpus: list[dict[str, str]] = []

    @model_validator(mode="after")
    def alike(self) -> Self:
        if any(gpu.keys() != self.gpus[0].keys() or not gpu for gpu in self.gpus):
            raise ValueError("gpus have different columns")
        return self


class _Region(_Part):
    kind: _Text
    rows: _Size
    columns: _Size
    tile_bytes: _Count
    updates_per_element: _Count
    wg_offset: Annotated[int, Field(ge=-(1 << 31), le=1 << 31)]
    tiles_per_block: _Size
    to_device: Annotated[int, Field(ge=0, le=1024)] | None


class _Bases(_Part):
    own: _Count
    downstream: _Count


class _FinalTiles(_Part):
    come: list[_Count]
    expected: list[_Count]


class _Header(_Part):
    title: _Text
    has_plan: bool
    simulated_devices: Annotated[int, Field(ge=1, le=256)]
    mirrored: bool
    ring_devices: list[_Count]
    downstream: list[_Count]
    starvation_limit: _Count
    clock_ghz: Annotated[float, Field(gt=0, le=1000)]
    link_latency_cycles: _Count
    geometry: _Geometry
    workgroups: _Size
    wavefronts: Annotated[int, Field(ge=1, le=256)]
    filter: _Filter
    recorded: _Recorded
    #: Of a run with a plan.
    devices: _Size | None = None
    wf_columns: _Size | None = None
    pitch_bytes: Annotated[int, Field(ge=1, le=1 << 40)] | None = None
    element_bytes: Annotated[int, Field(ge=1, le=8)] | None = None
    bases: list[_Bases] | None = None
    peers: list[_Count] | None = None
    regions: list[list[_Region]] | None = None
    final_tiles: _FinalTiles | None = None
    first_arrivals: list[Annotated[int, Field(ge=-1, le=1 << 62)]] | None = None

    @model_validator(mode="after")
    def of_all_devices(self) -> Self:
        devices = self.simulated_devices
        lists = {"ring_devices": self.ring_devices, "downstream": self.downstream}
        if self.has_plan:
            if missing := [name for name in ("devices", "wf_columns", "pitch_bytes", "element_bytes", "bases", "peers",
                                             "regions") if getattr(self, name) is None]:
                raise ValueError(f"{missing[0]} is missing, which a run with a plan has")
            lists |= {"bases": self.bases, "peers": self.peers, "regions": self.regions}
        if self.final_tiles is not None:
            lists |= {"final_tiles.come": self.final_tiles.come, "final_tiles.expected": self.final_tiles.expected}
        if self.first_arrivals is not None:
            lists["first_arrivals"] = self.first_arrivals
        for name, entries in lists.items():
            if len(entries) != devices:
                raise ValueError(f"{name} has {len(entries)} entries for {devices} devices")
        if max(self.downstream) >= devices:
            raise ValueError(f"downstream names device {max(self.downstream)} of {devices}")
        return self


def fault(run: dict[str, Any]) -> str | None:
    """Say what is wrong with the content of a trace.json, in words; None: nothing."""
    try:
        _Header.model_validate(run)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place, text = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        return f"{place}: {text[0].lower()}{text[1:]}" if place else text
    return None
