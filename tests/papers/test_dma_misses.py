"""What is not known of the DMA collectives' power, and experiments on what is missed."""

import pytest

from t3sim.analytic.rings import kernel_collective_ns
from t3sim.machine import MachineError, load_machine
from t3sim.machine.levels import ENGINES
from t3sim.papers.dma import misses, power
from t3sim.papers.dma.misses import fastest_until, overtaken_from, quicker_kernels
from t3sim.papers.dma.power import engine_watt_savings

NODE = load_machine("mi300x", ENGINES)


@pytest.mark.long
def test_the_estimate_lies_in_its_range_and_each_input_in_its_own():
    """With every input as the estimate takes it the ratios are the estimate's; a range's end moves them."""
    inputs = {name: power._default_input(NODE, name) for name in NODE.power.range.model_dump()}
    sizes = [64 << 20]
    central = power._ratios(NODE, sizes)
    assert power._ratios(power._with_inputs(NODE, inputs), sizes) == pytest.approx(central, rel=1e-3)
    for name, ends in NODE.power.range.model_dump().items():
        assert ends[0] <= inputs[name] * 1.001 and inputs[name] * 0.999 <= ends[1]
        lower, higher = (power._ratios(power._with_inputs(NODE, {name: end}), sizes) for end in ends)
        assert lower != higher
    findings = power.evaluate(None, None)
    for key, (low, high) in findings.ranges.items():
        assert low < central[key] < high


@pytest.mark.parametrize(("line", "words"), [
    ("link_pj_per_bit = [2.0, 10.0]", "range.link_pj_per_bit = [2.0, 10.0]: the least and the most are needed, and 11"),
    ("link_pj_per_bit = [12.0, 2.0]", "range.link_pj_per_bit"), ("link_pj_per_bit = [2.0]", "link_pj_per_bit"),
    ("kernel_units = [9.0, 8.0]", "range.kernel_units = [9.0, 8.0]")])
def test_a_range_that_is_none_is_refused(line, words, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(f'extends = "mi300x"\n[power.range]\n{line}\n')
    with pytest.raises(MachineError) as caught:
        load_machine(str(path), ENGINES)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_half_of_the_latency_is_half_of_a_small_collective():
    ratio = kernel_collective_ns(quicker_kernels(NODE, 0.5), 1024) / kernel_collective_ns(NODE, 1024)
    assert 0.5 < ratio < 0.51


def test_a_percent_of_the_rate_decides_who_is_ahead_in_the_end():
    """What is saved before the copies is the same for any size, what is lost in them is not."""
    slower = NODE.changed(link=dict(push_efficiency=0.99 * NODE.link.push_efficiency))
    assert [overtaken_from(NODE, of, "ag") for of in (NODE, slower)] == ["never", "512 MB"]
    late = NODE.changed(engine=dict(poll_ns=NODE.engine.poll_ns + 30_000.0))
    assert overtaken_from(NODE, late, "ag") == f"{misses._LARGE[0] >> 20} MB"


@pytest.mark.long
def test_the_collectives_turn_at_one_size():
    for next_copy_ns, size in ((125.0, 256 << 10), (1000.0, 0)):
        other = NODE.changed(engine=dict(next_copy_ns=next_copy_ns))
        assert [fastest_until(other, collective) for collective in ("ag", "a2a")] == [size] * 2


def test_a_watt_of_an_engine_that_is_awake_is_what_few_engines_save():
    none, one = engine_watt_savings(NODE, 0.0), engine_watt_savings(NODE, 1.0)
    assert none[0] < 0.5 and 2 < one[0] < 4  # seven engines of a GPU, or one
    assert 300 / 750 < one[1] - none[1] < 300 / 191  # seven, or four, of a GPU between rest and its most
