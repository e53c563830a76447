"""Stepping through a trace: the state of any cycle, conditions, and the terminal program driven by its keys."""

import asyncio
import html
import re

import numpy as np
import pytest

from t3sim import cli
from t3sim.base.errors import BadInput
from t3sim.trace import schema
from t3sim.trace.replay import CONDITION_HELP, DeviceReplay
from t3sim.trace.schema import COMPLETE, NO_STREAM, Kind, Reason
from t3sim.trace.stepper import Stepper
from t3sim.trace.words import describe, reason
from tests.support.recorded import ring

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return ring(tmp_path_factory)


@pytest.fixture(scope="module")
def replay(trace):
    return DeviceReplay(trace, 1)


def test_open_tiles_are_those_a_plain_count_gives(replay, rng):
    """A dictionary filled event by event, compared at random cycles."""
    cycles = sorted(rng.randrange(replay.first, replay.last) for _ in range(40))
    held, at = {}, 0
    for cycle in cycles:
        while at < len(replay.updates) and replay.updates["cycle"][at] <= cycle:
            e = replay.updates[at]
            tile = int(e["wg"]), int(e["wf"])
            if e["flags"] & COMPLETE:
                held.pop(tile, None)
            else:
                held[tile] = int(e["a"])
            at += 1
        shown = {(int(e["wg"]), int(e["wf"])): int(e["a"]) for e in replay.open_tiles(cycle)}
        assert shown == held
    assert len(replay.open_tiles(cycles[20])) > 0


def test_nothing_is_left_at_the_end(replay):
    assert len(replay.open_tiles(replay.last)) == replay.commands(replay.last)[0] == 0
    assert replay.engines(replay.last) == [None] * 2
    channel = replay.channel(0, replay.last)
    assert channel.decision["stream"] == NO_STREAM and channel.entered == (0, 0)


def test_waiting_commands_are_what_the_hardware_counted(replay):
    for e in replay.of(Kind.READY):
        before, _ = replay.commands(int(e["cycle"]) - 1)
        issued = (replay.of(Kind.ISSUE)["cycle"] == e["cycle"]).sum()
        assert replay.commands(int(e["cycle"]))[0] == before + 1 - issued


def test_moving_forwards_and_backwards_meets_the_same_cycles(replay):
    forwards, cycle = [], replay.first - 1
    while (cycle := replay.next_event(cycle, kind=Kind.TRIGGER)) is not None:
        forwards.append(cycle)
    backwards, cycle = [], replay.last + 1
    while (cycle := replay.next_event(cycle, False, Kind.TRIGGER)) is not None:
        backwards.append(cycle)
    assert forwards == backwards[::-1] == sorted(set(replay.of(Kind.TRIGGER)["cycle"].tolist()))


def test_conditions_come_true_where_the_events_say(replay):
    found = replay.find("count of wg 20 wf 1 reaches 1000", 0)
    mine = [e for e in replay.at(found) if e["kind"] == Kind.UPDATE and (e["wg"], e["wf"]) == (20, 1)]
    assert mine[0]["a"] >= 1000 > mine[0]["a"] - mine[0]["amount"]
    fires = replay.find("wg 20 wf 1 fires", found)
    assert fires > found and replay.find("wg 20 wf 1 fires", fires) is None
    assert replay.find("wg 20 wf 1 fires", replay.last, forwards=False) == fires
    granted = replay.find("channel 2 grants dma", 0)
    assert replay.channel(2, granted).decision["stream"] == 2
    busy = replay.find("channel 2 queue reaches 9", 0)
    assert replay.channel(2, busy).decision["a"] >= 9
    assert replay.commands(replay.find("commands reach 3", 0))[0] >= 3
    assert replay.find("kind trigger of wg 20", 0) in replay.of(Kind.TRIGGER)["cycle"]


def test_a_set_is_full_when_its_ways_are_used(replay):
    """Sets of this run never fill by themselves: four of eight ways. A narrower Tracker is pretended."""
    geometry = replay.trace.run["geometry"] | {"ways": 4}
    pretended = DeviceReplay(type(replay.trace)(replay.trace.folder, replay.trace.run | {"geometry": geometry}), 1)
    assert replay.find("set 4 full", 0) is None
    cycle = pretended.find("set 4 full", 0)
    tiles = pretended.open_tiles(cycle)
    assert (tiles["wg"] % geometry["sets"] == 4).sum() == 4
    assert (pretended.open_tiles(cycle - 1)["wg"] % geometry["sets"] == 4).sum() == 3


@pytest.mark.parametrize("text", ["set full", "wg", "channel 1 grants", "", "kind"])
def test_what_is_no_condition_is_refused_with_examples(replay, text):
    with pytest.raises(BadInput, match="is not a condition; allowed are: set 17 full"):
        replay.find(text, 0)


@pytest.mark.parametrize("text", CONDITION_HELP)
def test_every_example_is_understood(replay, text):
    replay.find(text, 0)


def test_every_event_has_words(replay):
    for kind in Kind:
        for e in replay.of(kind)[:3]:
            assert "<" not in describe(e) and len(describe(e)) > 10


def drive(trace, keys: list[str], size=(160, 45), then=None) -> tuple[Stepper, str]:
    """The program after these keys, and its screen as SVG; `then`: the terminal's size from then on."""
    async def go():
        app = Stepper(trace, 1, 6000)
        async with app.run_test(size=size) as pilot:
            for key in keys:
                await pilot.press(*([{" ": "space"}.get(c, c) for c in key[1:]] if key.startswith("'") else [key]))
            if then:
                await pilot.resize_terminal(*then)
            await pilot.pause()
            return app, app.export_screenshot()
    return asyncio.run(go())


def lines(screen: str) -> list[str]:
    """A screenshot's lines as text, every character in its column."""
    rows: dict[float, list[tuple[int, str]]] = {}
    for x, y, text in re.findall(r'<text[^>]*? x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', screen):
        rows.setdefault(float(y), []).append((round(float(x) / 12.2), html.unescape(text).replace("\xa0", " ")))
    found = []
    for y in sorted(rows):
        line = ""
        for column, text in sorted(rows[y]):
            line = line.ljust(column) + text
        found.append(line)
    return found


SIZES = [(80, 24), (120, 40)]


def test_a_search_keeps_the_break_condition_and_a_small_terminal_has_the_tracker(trace):
    app, screen = drive(trace, ["b", "'kind trigger", "enter", "slash", "'kind ready", "enter"], SIZES[0])
    assert app.condition == "kind trigger" and app.message == "kind ready: here"
    assert any("► meets the condition" in line for line in lines(screen))
    assert any("► ready" in line for line in lines(screen))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("key", "question"), [("b", "break when: "), ("slash", "search: "), ("g", "go to cycle: ")])
def test_what_is_typed_can_be_read(trace, size, key, question):
    _, screen = drive(trace, [key, "'wg 2"], size)
    assert f"{question}wg 2" in "\n".join(lines(screen))
    assert any("quit" in line for line in lines(screen)[-2:])


@pytest.mark.parametrize(("size", "then"), [((120, 40), (80, 24)), ((80, 24), (120, 40))])
def test_a_resized_terminal_shows_what_one_of_that_size_does(trace, size, then):
    assert lines(drive(trace, [], size, then)[1]) == lines(drive(trace, [], then)[1])


@pytest.mark.parametrize("size", SIZES)
def test_the_whole_reason_of_each_decision_can_be_read(trace, replay, size):
    cycle = replay.find("channel 2 grants nothing", 6000)
    while reason(replay.channel(2, cycle).decision) != schema.REASONS[Reason.GUARD]:  # the longest reason
        cycle = replay.find("channel 2 grants nothing", cycle)
    _, screen = drive(trace, ["g", f"'{cycle}", "enter", *(["tab"] if size[0] < 100 else [])], size)
    shown = lines(screen)
    top = next(i for i, line in enumerate(shown) if "arbiters" in line)
    left = shown[top + 1].index("last decision")
    told = " ".join(" ".join(line[left:] for line in shown[top:]).replace("│", " ").split())
    words = "–: " + schema.REASONS[Reason.GUARD]
    assert words in told, told


def test_a_slim_terminal_keeps_the_reason_and_the_count(trace):
    def panel(keys: list[str], title: str) -> str:
        shown = lines(drive(trace, keys, (40, 30))[1])
        top = next(i for i, line in enumerate(shown) if title in line)
        return "\n".join(shown[top:])
    arbiters, tracker = panel(["tab"], "arbiters"), panel([], "Tracker")
    assert "last decision" in arbiters and re.search(r"(–|compute|inbound|dma): \w+", arbiters) and "…" not in arbiters
    assert re.search(r"wg \d+ wf \d +\d[\d,]*/2,048", tracker) and "…" not in tracker


def test_a_panel_that_nothing_recorded_fills_is_left_out(trace):
    """Of a recording of some kinds; in a narrow terminal, too, whose key goes to those that are there."""
    some = type(trace)(trace.folder, trace.run)
    vars(some)["events"] = trace.events[np.isin(trace.events["kind"], (Kind.DECIDE, Kind.PACKET))]
    whole = "\n".join(lines(drive(trace, [], (160, 45))[1]))
    assert all(title in whole for title in ("this cycle", "Tracker", "arbiters", "DMA, link"))
    for size, keys, there in (((160, 45), [], "arbiters DMA"), ((80, 24), [], "arbiters"),
                              ((80, 24), ["tab"], "DMA"), ((80, 24), ["tab", "tab"], "arbiters")):
        shown = "\n".join(lines(drive(some, keys, size)[1]))
        assert {title for title in ("Tracker", "arbiters", "DMA") if f"─ {title}" in shown} == {*there.split()}, shown
    shown = "\n".join(lines(drive(some, ["home", "comma"], (160, 45))[1]))
    assert "no event in this cycle" in shown or "decide" in shown


def test_what_fulfilled_the_condition_is_marked(trace):
    def marked(condition: str) -> list[str]:
        _, screen = drive(trace, ["b", f"'{condition}", "enter"], (120, 40))
        return [line[line.index("►"):] for line in lines(screen) if "►" in line and "meets the condition" not in line]
    update = marked("wg 20 wf 1 fires")
    assert len(update) == 1 and "update" in update[0] and "wg 20 wf 1 + " in update[0]
    assert "2,048/2,048 3" in update[0]
    assert re.search(r"► +4 \(\d/8\) +FIRES +wg 20 wf 1", update[0].replace("│", " "))  # in the Tracker's panel
    assert "wg 20 wf 1" in marked("count of wg 20 wf 1 reaches 2000")[0]
    both = marked("channel 2 grants dma")
    assert "channel 2 grants dma" in both[0] and re.search("► +2 .* dma: ", both[1])
    assert not marked("")


@pytest.mark.parametrize("keys", [[], ["b", "'wg"]])
def test_ctrl_c_quits(trace, keys):
    assert drive(trace, keys)[0].return_code is None
    assert drive(trace, [*keys, "ctrl+c"])[0].return_code == 0


def test_keys_break_and_go_back(trace, replay):
    app, screen = drive(trace, ["b", "'count of wg 20 wf 1 reaches 2000", "enter"])
    reached = replay.find("count of wg 20 wf 1 reaches 2000", 6000)
    assert app.cycle == reached and "here" in app.message
    for words in ("arbiters", "Tracker", "engine", "wg&#160;20&#160;wf&#160;1"):
        assert words in screen
    app, _ = drive(trace, ["b", "'count of wg 20 wf 1 reaches 2000", "enter", "full_stop", "full_stop", "r"])
    assert app.cycle == reached


def test_keys_move(trace, replay):
    app, _ = drive(trace, ["right", "full_stop", "comma", "left"])
    assert app.cycle == replay.next_event(replay.next_event(6000), False)
    app, _ = drive(trace, ["n", "n", "p"])
    assert app.cycle == replay.next_event(6000, kind=Kind.TRIGGER)
    app, screen = drive(trace, ["g", "'7000", "enter", "d", "k"])
    assert app.cycle == 7000 and app.replay.device == 2 and "GPU&#160;2" in screen and app.kind == Kind.READY
    app, _ = drive(trace, ["b", "'set full", "enter"])
    assert "is not a condition" in app.message and app.cycle == 6000


def test_the_screen_shows_the_state(trace, replay):
    _, screen = drive(trace, ["b", "'wg 20 wf 1 fires", "enter"], size=(200, 60))
    text = screen.replace("&#160;", " ")
    cycle = replay.find("wg 20 wf 1 fires", 6000)
    assert f"cycle {cycle:,} of 0 to" in text and "FIRES" in text
    tile = replay.open_tiles(cycle)[0]
    assert f"wg {tile['wg']} wf {tile['wf']}" in text and f"{tile['a']:,}/{tile['b']:,}" in text
    assert f"{(replay.of(Kind.PACKET)['cycle'] <= cycle).sum():,} sent" in text


def test_the_command_refuses_what_it_cannot_do(trace, capsys):
    def run(*arguments):
        code = cli.main(["step", str(trace.folder), *arguments])
        return code, capsys.readouterr().err
    assert run() == (2, "t3: error: t3 step needs a terminal; `t3 explain` works without one\n")
    assert "the condition never holds" in run("--break", "set 4 full")[1]
    assert "has 0 to 3" in run("--gpu", "4")[1]
