"""The waveforms of the site: recorded cycles become lanes, and each belongs to a block."""

import json

import pytest

from t3sim.rtl.blocks import BLOCKS
from t3sim.testbenches.waveforms import CYCLES, FOLDER, sampled, wavedrom

#: A stream moves in the second and third cycle, with two payloads.
VCD = """\
$timescale 1ps $end
 $scope module $rootio $end
  $var wire 1 ! clk $end
  $var wire 1 " rst $end
  $var wire 1 # a__valid $end
  $var wire 1 $ a__ready $end
  $var wire 4 % a__payload [3:0] $end
 $upscope $end
 $scope module block $end
  $var wire 1 & $1 $end
 $upscope $end
$enddefinitions $end
#0
0!
0"
0#
1$
b0 %
#1
1!
#2
0!
1#
b1010 %
#3
1!
#4
0!
b11 %
#5
1!
#6
0!
0#
#7
1!
"""


def test_a_recording_becomes_lanes(tmp_path):
    path = tmp_path / "dump.vcd"
    path.write_text(VCD)
    cycles = list(sampled(path, 100))
    assert [cycle["a__payload"] for cycle in cycles] == [0, 10, 3, 3]
    lanes = {lane["name"]: lane for lane in wavedrom("block", "small", cycles)["signal"] if lane}
    assert lanes["clk"]["wave"] == "P..."
    assert lanes["a.valid"]["wave"] == "01.0" and lanes["a.ready"]["wave"] == "1..."
    assert lanes["a.payload"] == {"name": "a.payload", "wave": "x==x", "data": ["a", "3"]}
    assert len(list(sampled(path, 2))) == 2


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_has_a_waveform(block: str):
    wave = json.loads((FOLDER / f"{block}.json").read_text(encoding="utf-8"))
    assert block in wave["foot"]["text"]
    lanes = [lane for lane in wave["signal"] if lane]
    assert len(lanes) > 1 and all(0 < len(lane["wave"]) <= CYCLES for lane in lanes)
    assert all(lane["wave"].count("=") == len(lane.get("data", ())) for lane in lanes)


def test_every_waveform_is_of_a_block():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(BLOCKS)
