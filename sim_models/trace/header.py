"""Check of trace.json before anything reads it: every field has the type and size that its readers count on."""

from itertools import chain
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from t3sim.trace.passes import Count, Described, Passes, Size, TracedCollective
from t3sim.trace.schema import NAMES

_Text = Annotated[str, Field(max_length=1000)]


class _Geometry(Described):
    channels: Annotated[int, Field(ge=1, le=1024)]
    queue_entries: Size
    sets: Size
    ways: Annotated[int, Field(ge=1, le=64)]
    banks: Annotated[int, Field(ge=1, le=64)]
    engines: Annotated[int, Field(ge=1, le=64)]
    compute_units: Size | None = None  #: places for workgroups on them, of all units
    units: Size | None = None


class _Filter(Described):
    kinds: list[Literal[*NAMES]] | None
    channels: list[Count] | None
    wgs: list[Count] | None


class _Recorded(Described):
    first: Count = Field(alias="from")
    until: Count
    complete_until: Count
    cycles_of_run: Count
    outcome: _Text
    problem: Annotated[str, Field(max_length=100_000)] | None
    dropped: Count
    gpus: list[dict[str, str]] = []

    @model_validator(mode="after")
    def alike(self) -> Self:
        if any(gpu.keys() != self.gpus[0].keys() or not gpu for gpu in self.gpus):
            raise ValueError("gpus have different columns")
        return self


class _Destination(Described):
    device: Annotated[int, Field(ge=0, le=1024)]
    region: Size


class _Region(Described):
    kind: _Text
    rows: Size
    columns: Size
    tile_bytes: Count
    updates_per_element: Count
    counted_bytes: Count
    admitted: bool
    present: bool
    tiles_per_block: Size
    to: list[_Destination]


class _FinalTiles(Described):
    come: list[Count]
    expected: list[Count]


#: What trace.json has of a run with a plan.
_OF_A_PLAN = ("devices", "wf_columns", "pitch_bytes", "element_bytes", "bases", "tiles", "parts", "around_a_ring",
              "in_switch", "switch_groups", "regions")


class _Header(Described):
    title: _Text
    has_plan: bool
    simulated_devices: Annotated[int, Field(ge=1, le=256)]
    mirrored: bool
    numbers: list[Count]
    starvation_limit: Count
    clock_ghz: Annotated[float, Field(gt=0, le=1000)]
    link_latency_cycles: Count
    geometry: _Geometry
    names: Size
    wavefronts: Annotated[int, Field(ge=1, le=256)]
    filter: _Filter
    recorded: _Recorded
    #: Of a run with a plan.
    devices: Size | None = None
    wf_columns: Size | None = None
    pitch_bytes: Annotated[int, Field(ge=1, le=1 << 40)] | None = None
    element_bytes: Annotated[int, Field(ge=1, le=8)] | None = None
    bases: list[Count] | None = None
    tiles: list[Size] | None = None
    parts: Annotated[int, Field(ge=1, le=1024)] | None = None
    around_a_ring: bool | None = None
    in_switch: bool | None = None
    group_tiles: Size | None = None  #: of a GEMM that waits for groups of tiles
    switch_groups: list[list[list[Count]]] | None = None
    regions: list[list[_Region]] | None = None
    final_tiles: _FinalTiles | None = None
    first_arrivals: list[Annotated[int, Field(ge=-1, le=1 << 62)]] | None = None
    collective: TracedCollective | None = None  #: of a collective alone

    @model_validator(mode="after")
    def of_all_devices(self) -> Self:
        devices = self.simulated_devices
        lists = {"numbers": self.numbers}
        if self.has_plan:
            if missing := [name for name in _OF_A_PLAN if getattr(self, name) is None]:
                raise ValueError(f"{missing[0]} is missing, which a run with a plan has")
            lists |= {"tiles": self.tiles, "switch_groups": self.switch_groups, "regions": self.regions}
            if len(self.bases) != self.devices:
                raise ValueError(f"bases has {len(self.bases)} entries for {self.devices} GPUs")
            if self.mirrored and devices > 1 or not self.mirrored and self.numbers != list(range(self.devices)):
                raise ValueError(f"numbers are {self.numbers}, and all of {self.devices} GPUs are needed, or one")
            named_gpus = {to.device for region in chain(*self.regions) for to in region.to}
            named_gpus |= set(chain(*chain(*self.switch_groups), self.numbers))
            if named_gpus and max(named_gpus) >= self.devices:
                raise ValueError(f"a region names GPU {max(named_gpus)} of {self.devices}")
        if self.final_tiles is not None:
            lists |= {"final_tiles.come": self.final_tiles.come, "final_tiles.expected": self.final_tiles.expected}
        if self.first_arrivals is not None:
            lists["first_arrivals"] = self.first_arrivals
        if self.collective is not None:
            for name, value in (("devices", self.devices), ("geometry.units", self.geometry.units)):
                if value is None:
                    raise ValueError(f"{name} is missing, which a collective has")
            if self.mirrored and devices > 1 or not self.mirrored and devices != self.devices:
                raise ValueError(f"{devices} of {self.devices} GPUs were simulated")
            lists["collective.gpus"] = self.collective.gpus
        for name, entries in lists.items():
            if len(entries) != devices:
                raise ValueError(f"{name} has {len(entries)} entries for {devices} GPUs")
        if self.collective is not None and (wrong := Passes(self.collective, self.mirrored).fault(
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
