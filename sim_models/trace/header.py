"""Check of trace.json before anything reads it: every field has the type and size that its readers count on."""

from itertools import chain
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from t3sim.trace.passes import Passes
from t3sim.trace.schema import NAMES

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
    compute_units: _Size | None = None  #: places for workgroups on them, of all units
    units: _Size | None = None


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


class _Destination(_Part):
    device: Annotated[int, Field(ge=0, le=1024)]
    region: _Size


class _Region(_Part):
    kind: _Text
    rows: _Size
    columns: _Size
    tile_bytes: _Count
    updates_per_element: _Count
    counted_bytes: _Count
    admitted: bool
    present: bool
    tiles_per_block: _Size
    to: list[_Destination]


class _FinalTiles(_Part):
    come: list[_Count]
    expected: list[_Count]


_Number = Annotated[int, Field(ge=-1, le=1024)]  #: of a device, -1 none


class _Source(_Part):
    address: _Count
    origin: _Number


class _Copied(_Part):
    to: _Number
    address: _Count


class _Pass(_Part):
    chunk: _Count
    sources: Annotated[list[_Source], Field(min_length=1)]
    destination: _Count
    to: _Number
    comes_from: _Number
    copied: _Copied | None = None


class _Share(_Part):
    first: _Count
    workgroups: _Size
    first_byte: _Count
    apart: _Size
    size: _Size


class _Step(_Part):
    over: _Count | None
    lines: _Count
    passes: Annotated[list[_Pass], Field(min_length=1)]
    shares: Annotated[list[_Share], Field(min_length=1)]


class _Gpu(_Part):
    start: _Count
    steps: Annotated[list[_Step], Field(min_length=1)]


class _Collective(_Part):
    chunk_bytes: Annotated[int, Field(ge=1, le=1 << 48)]
    gpus: Annotated[list[_Gpu], Field(min_length=1)]


#: What trace.json has of a run with a plan.
_OF_A_PLAN = ("devices", "wf_columns", "pitch_bytes", "element_bytes", "bases", "tiles", "parts", "around_a_ring",
              "in_switch", "switch_groups", "regions")


class _Header(_Part):
    title: _Text
    has_plan: bool
    simulated_devices: Annotated[int, Field(ge=1, le=256)]
    mirrored: bool
    numbers: list[_Count]
    starvation_limit: _Count
    clock_ghz: Annotated[float, Field(gt=0, le=1000)]
    link_latency_cycles: _Count
    geometry: _Geometry
    names: _Size
    wavefronts: Annotated[int, Field(ge=1, le=256)]
    filter: _Filter
    recorded: _Recorded
    #: Of a run with a plan.
    devices: _Size | None = None
    wf_columns: _Size | None = None
    pitch_bytes: Annotated[int, Field(ge=1, le=1 << 40)] | None = None
    element_bytes: Annotated[int, Field(ge=1, le=8)] | None = None
    bases: list[_Count] | None = None
    tiles: list[_Size] | None = None
    parts: Annotated[int, Field(ge=1, le=1024)] | None = None
    around_a_ring: bool | None = None
    in_switch: bool | None = None
    group_tiles: _Size | None = None  #: of a GEMM that waits for groups of tiles
    switch_groups: list[list[list[_Count]]] | None = None
    regions: list[list[_Region]] | None = None
    final_tiles: _FinalTiles | None = None
    first_arrivals: list[Annotated[int, Field(ge=-1, le=1 << 62)]] | None = None
    collective: _Collective | None = None  #: of a collective alone

    @model_validator(mode="after")
    def of_all_devices(self) -> Self:
        devices = self.simulated_devices
        lists = {"numbers": self.numbers}
        if self.has_plan:
            if missing := [name for name in _OF_A_PLAN if getattr(self, name) is None]:
                raise ValueError(f"{missing[0]} is missing, which a run with a plan has")
            lists |= {"tiles": self.tiles, "switch_groups": self.switch_groups, "regions": self.regions}
            if len(self.bases) != self.devices:
                raise ValueError(f"bases has {len(self.bases)} entries for {self.devices} devices")
            if self.mirrored and devices > 1 or not self.mirrored and self.numbers != list(range(self.devices)):
                raise ValueError(f"numbers are {self.numbers}, and all of {self.devices} devices are needed, or one")
            named = {to.device for region in chain(*self.regions) for to in region.to}
            named |= set(chain(*chain(*self.switch_groups), self.numbers))
            if named and max(named) >= self.devices:
                raise ValueError(f"a region names device {max(named)} of {self.devices}")
        if self.final_tiles is not None:
            lists |= {"final_tiles.come": self.final_tiles.come, "final_tiles.expected": self.final_tiles.expected}
        if self.first_arrivals is not None:
            lists["first_arrivals"] = self.first_arrivals
        if self.collective is not None:
            for name, value in (("devices", self.devices), ("geometry.units", self.geometry.units)):
                if value is None:
                    raise ValueError(f"{name} is missing, which a collective has")
            if self.mirrored and devices > 1 or not self.mirrored and devices != self.devices:
                raise ValueError(f"{devices} of {self.devices} devices were simulated")
            lists["collective.gpus"] = self.collective.gpus
        for name, entries in lists.items():
            if len(entries) != devices:
                raise ValueError(f"{name} has {len(entries)} entries for {devices} devices")
        if self.collective is not None and (wrong := Passes(self.collective.model_dump(), self.mirrored).fault(
                self.names, self.devices)):
            raise ValueError(wrong)
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
