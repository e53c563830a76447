"""A DLRM's training pass: operators by hand, what overlaps with what, and the figure made from passes."""

from dataclasses import replace

import pytest

from t3sim.machine import load_machine
from t3sim.machine.levels import NETWORK
from t3sim.papers.figure import paper_setup
from t3sim.papers.fused.dlrm import DLRM
from t3sim.papers.fused.dlrm_pass import PAPER, PassOptions, PassTimes, operators, training_pass
from t3sim.papers.paper import compare

MACHINE = load_machine("torus-128", NETWORK).model_copy(update={"topology": "torus:3x3"})
SMALL = replace(PAPER, local_batch=256)


def with_links(gb_per_s):
    link = MACHINE.link.model_copy(update={"bandwidth_gb_per_s": gb_per_s, "latency_ns": 0.0})
    return MACHINE.model_copy(update={"link": link})


def test_rows_are_read_by_whole_lines():
    """92 numbers of 4 bytes begin at any multiple of 16: they touch 3.75 lines of 128 bytes on average."""
    gpu = MACHINE.accelerator
    times = operators(replace(SMALL, tables_per_gpu=1), gpu, 128, 9)
    bags, rate = 256 * 9, gpu.memory_gb_per_s * gpu.memory_efficiency
    assert times.pooling == pytest.approx(bags * (70 * (480 + 8) + 368) / rate + gpu.kernel_ns)
    assert times.gradient_rows == pytest.approx(bags * (70 * (368 + 8) + 368) / rate + gpu.kernel_ns)
    assert times.update == pytest.approx(bags * 70 * (368 + 2 * 480 + 8) / rate + gpu.kernel_ns)
    aligned = operators(replace(SMALL, embedding_dim=96, tables_per_gpu=1), gpu, 128, 9)
    assert aligned.pooling == pytest.approx(bags * (70 * (384 + 8) + 384) / rate + gpu.kernel_ns)


def test_mlps_have_their_layers():
    times = operators(SMALL, MACHINE.accelerator, 128, 9)
    assert SMALL.bottom_layers == 25
    assert times.bottom_forward / 25 == pytest.approx(times.top_forward / 18)
    assert 1.5 * times.top_forward < times.top_backward < 2.5 * times.top_forward
    assert SMALL.mlp_bytes == 4 * (682 * 682 + 682)
    assert SMALL.pooled_bytes(9) == 2 * 256 * 9 * 92 * 4


@pytest.mark.builds_loops
@pytest.mark.parametrize("fused", [False, True])
def test_without_a_network_only_kernels_are_left(fused):
    done = training_pass(SMALL, with_links(1e9), PassOptions(fused))
    kernels = sum(end - start for name, start, end in done.spans if not name.startswith("all-"))
    assert done.ns == pytest.approx(kernels, rel=0.01)


@pytest.mark.builds_loops
def test_what_is_fused_takes_the_longer_of_both():
    """From a fast to a slow network, first the kernel is longer, then the all-to-all.

    The baseline takes the sum of them but for the bottom MLP.
    """
    model = replace(SMALL, mlp_layers=7, bottom_layers=4, tables_per_gpu=16)
    times = operators(model, MACHINE.accelerator, 128, 9)
    for rate in (200.0, 25.0, 3.0):
        plain, fused = (training_pass(model, with_links(rate), PassOptions(one)) for one in (False, True))
        exchange = plain.duration_ns("all-to-all forward")
        (start, end), = [span[1:] for span in fused.spans if span[0] == "all-to-all forward"]
        # A kernel's rate is that of the whole output, of which a ninth stays here.
        assert end - start == pytest.approx(max(8 / 9 * times.pooling, exchange), rel=0.03)
        begin = min(span[1] for span in fused.spans if span[0] == "bottom MLP forward")
        assert begin == pytest.approx(max(times.pooling, end - start), rel=0.01)
        begin = min(span[1] for span in plain.spans if span[0] == "interaction forward")
        assert begin == pytest.approx(times.pooling + max(exchange, times.bottom_forward), rel=0.01)
        if exchange > times.bottom_backward:  # else the bottom MLP hides it anyway
            assert fused.ns < plain.ns


@pytest.mark.builds_loops
def test_collectives_share_the_links():
    """The gradients' all-reduce goes beside the all-to-all of the backward pass and makes it longer."""
    slow = with_links(2.0)
    done = training_pass(SMALL, slow, PassOptions(False))
    assert done.duration_ns("all-to-all backward") > 1.1 * done.duration_ns("all-to-all forward")


@pytest.mark.builds_loops
def test_variants_change_what_they_say():
    base, applied, beside = (training_pass(SMALL, MACHINE, PassOptions(True, **kind)) for kind in (
        {}, {"applied": True}, {"bottom_beside": True}))
    assert applied.duration_ns("optimizer, rows") == 0 < base.duration_ns("optimizer, rows")
    assert beside.ns <= base.ns
    other = training_pass(SMALL, MACHINE, PassOptions(True, exchange="hierarchical", reduction="hierarchical"))
    assert other.ns != base.ns


@pytest.mark.long
def test_the_figure_is_judged():
    """From made-up passes: what is compared is the mean over the numbers of tables."""
    setup = paper_setup(load_machine())
    names = ("pooling", "row gradients", "optimizer, rows", "all-to-all forward", "all-reduce of the top MLP",
             "bottom MLP forward", "interaction forward")
    results = {task: PassTimes(80e6 if task.graph.fused else 100e6, tuple((name, 0.0, 5e6) for name in names))
               for task in DLRM.tasks(setup)}
    assert len(results) == 30 and len({task.key for task in results}) == 30
    findings = DLRM.evaluate(setup, results)
    assert findings.ours == {"dlrm_reduction_percent": pytest.approx(20)}
    assert findings.ranges == {"dlrm_reduction_percent": (pytest.approx(20), pytest.approx(20))}
    assert compare(findings.targets, findings.ours)["dlrm_reduction_percent"]["met"]
    assert len(findings.tables[0].rows) == 3
    findings.plots["dlrm"]()
