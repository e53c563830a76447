"""Persistent kernels that send: against bounds, and what occupancy, order and granularity change."""


import pytest

from t3sim.analytic.gemm import Shape, tile_kernel
from t3sim.analytic.rings import library_exchange_ns, library_ring_ns
from t3sim.cli import main
from t3sim.event.tiles.ports import store_bytes_per_ns
from t3sim.event.tiles.slots import run_slices
from t3sim.machine import load_machine
from t3sim.machine.levels import TILES
from t3sim.mechanisms.event_runs import run_overlap
from t3sim.mechanisms.flux.event import Choice
from t3sim.mechanisms.fused_wg.event import (
    OPERATORS,
    Sending,
    alone_ns,
    embedding,
    fused_losses,
    fused_run,
    gemm_tasks,
    gemv,
    kernels_ns,
    over_cards_ns,
    places,
    run_persistent,
    task_ns,
    with_share,
)
from t3sim.runs.signals import SIGNALS

NODE = load_machine("mi210-x4", TILES)
SMALL = embedding(NODE, 4, 256, 64)
SHAPES = {"embedding-a2a": (256, 64), "gemv-ar": (8192, 2048), "gemm-a2a": (2048, 1024, 4096)}


def test_registers_decide_how_many_wavefronts_there_are():
    """64 registers leave eight wavefronts on a SIMD unit, one more leaves seven: the paper's 12.5 %."""
    held = [NODE.occupancy.held(registers) for registers in (8, 64, 65, 72, 73, 128, 256)]
    assert held == [32, 32, 28, 28, 24, 16, 8]
    assert places(NODE, True) / places(NODE, False) == 0.875
    assert [places(NODE, True, share) for share in (0.25, 0.5, 1)] == [208, 416, 832]


def test_pooling_waits_for_its_rows_then_for_the_memory():
    few, many = (task_ns(NODE, SMALL, resident) for resident in (100, 832))
    assert few == SMALL.task_ns == 3500 and many == pytest.approx(832 * (SMALL.read_bytes + 1024)
                                                                  / NODE.memory.moved_bytes_per_ns)
    times = [fused_run(NODE, 4, with_share(SMALL, NODE, share)).computed_ns for share in (0.25, 0.5, 0.75)]
    assert times[0] > 1.5 * times[2] and times[0] > times[1] >= times[2]


@pytest.mark.parametrize("tasks", [SMALL, gemv(NODE, 4, 8192, 2048), gemm_tasks(NODE, 4, Shape(2048, 1024, 4096))])
def test_nothing_is_faster_than_its_tasks_or_its_links(tasks):
    count = 4 * tasks.for_each
    for tracked in (False, True):
        resident = tasks.plain_places if tracked else tasks.sending_places
        run = fused_run(NODE, 4, tasks, Sending(8, tracked=tracked))
        rate = store_bytes_per_ns(NODE) if not tracked else NODE.link.bandwidth_gb_per_s * NODE.link.push_efficiency
        assert run.ns >= run.computed_ns >= count * task_ns(NODE, tasks, min(resident, count)) / resident * (1 - 1e-9)
        assert run.ns >= tasks.for_each * tasks.out_bytes / rate
        assert run.skew == 0


def test_separate_kernels_add_up():
    alone, collective = kernels_ns(NODE, 4, SMALL, 64)
    assert alone == pytest.approx(64 * (task_ns(NODE, SMALL, 256) + NODE.host.launch_ns))
    assert collective == library_exchange_ns(NODE, 4, SMALL.for_each * 1024)
    product = gemv(NODE, 4, 8192, 2048)
    assert kernels_ns(NODE, 4, product)[1] == library_ring_ns(NODE, 4, 8192 * 2, 2)
    shape = Shape(2048, 1024, 4096)
    experts = gemm_tasks(NODE, 4, shape)
    assert kernels_ns(NODE, 4, experts)[0] == pytest.approx(
        tile_kernel(NODE, shape, (128, 128)).ns + NODE.host.launch_ns)


def test_small_messages_take_the_other_protocol():
    large = NODE.model_copy(update={"library": NODE.library.model_copy(update={"small": None})})
    assert library_ring_ns(NODE, 4, 16384, 2) < library_ring_ns(large, 4, 16384, 2) / 2
    assert library_ring_ns(NODE, 4, 1e9, 2) == library_ring_ns(large, 4, 1e9, 2)


def test_what_is_for_others_comes_first():
    """Over cards, tasks in their order make the second node wait for the first one's last slices."""
    tasks = embedding(NODE, 2, 512, 64)
    aware, oblivious = (fused_run(NODE, 2, tasks, Sending(remote_first=first), cards=True) for first in (True, False))
    assert aware.skew == 0 and oblivious.skew > 0.03 and oblivious.ns > 1.03 * aware.ns
    assert aware.ns >= over_cards_ns(NODE, tasks) - NODE.library.base_ns


def test_the_last_whole_shard_hides_behind_its_own_ranks_tasks_only():
    """And a signal for every workgroup costs a mask each, unless hardware counts."""
    whole, fine = (fused_run(NODE, 4, SMALL, Sending.by(signal, SMALL)) for signal in ("shard", "workgroup"))
    sent = SMALL.for_each * 1024 / store_bytes_per_ns(NODE) + NODE.link.latency_ns + NODE.signals.poll_ns
    rounds = -(-3 * SMALL.for_each // SMALL.sending_places)
    each = task_ns(NODE, SMALL, SMALL.sending_places) + NODE.signals.mask_ns
    assert whole.ns == pytest.approx(rounds * each + sent, rel=0.02) and whole.ns > 1.2 * fine.ns
    assert fused_run(NODE, 4, SMALL, Sending.by("wave-group", SMALL)).ns == pytest.approx(fine.ns, rel=0.03)
    mask = NODE.model_copy(update={"signals": NODE.signals.model_copy(update={"mask_ns": 5000.0})})
    assert fused_run(mask, 4, SMALL, Sending(1)).ns > 1.2 * fine.ns
    assert fused_run(mask, 4, SMALL, Sending(1, tracked=True)) == fused_run(NODE, 4, SMALL, Sending(1, tracked=True))


@pytest.mark.parametrize("operator", OPERATORS)
def test_command_gives_every_technique(capsys, json_of, operator):
    shape = SHAPES[operator]
    gemm = {2: f"{shape[0]}x1x{shape[1]}"}.get(len(shape), "x".join(map(str, shape)))
    given = ["--embedding", "256x64"] if operator == "embedding-a2a" else ["--gemm", gemm]
    command = ["run", "--level", "event", "--operator", operator, "--machine", "mi210-x4", *given]
    found = json_of(*command)
    wanted = run_persistent(NODE, operator, 4, shape, sending=Sending(32 if operator == "embedding-a2a" else 1))
    assert found == wanted.to_json() and found["techniques"]["fused-wg"]["shorter"] > 0
    assert main(command) == 0
    assert "t3-model" in capsys.readouterr().out


@pytest.mark.parametrize(("options", "words"), [
    (["--operator", "embedding-a2a", "--embedding", "256"], "BATCHxTABLES"),
    (["--operator", "embedding-a2a", "--gemm", "8x8x8"], "BATCHxTABLES"),
    (["--operator", "gemv-ar", "--gemm", "8192x2x1024"], "8192x1x1024"),
    (["--level", "cycle", "--operator", "gemv-ar"], "gemv-ar needs --devices N"),
    (["--operator", "gemv-ar"], "--gemm MxNxK"), (["--operator", "gemv-ar", "--gemm", "100x1x64"], "multiple of 64"),
    (["--operator", "gemm-a2a", "--gemm", "64x64x64", "--technique", "flux"], "fused-wg"),
    (["--operator", "gemm-a2a", "--gemm", "64x64x64", "--devices", "8"], "2 to 4"),
    (["--operator", "embedding-a2a", "--embedding", "1x1"], "no task"),
    (["--operator", "embedding-a2a", "--embedding", "256x64", "--slice", "0"], "a task or more"),
    (["--operator", "gemm-a2a", "--gemm", "64x64x64", "--machine", "a100-nvlink"], "[occupancy]"),
    (["--operator", "gemm-rs", "--gemm", "64x64x64", "--slice", "4"], "--slice 4 does not go")])
def test_bad_input_is_one_line(error_of, options, words):
    machine = [] if "--machine" in options else ["--machine", "mi210-x4"]
    assert words in error_of("run", "--level", "event", *machine, *options)


def test_slices_take_the_places_that_are_free_whoever_fills_them():
    """Ten tasks in slices of three on four places: three rounds, and only the last task's place waits for the send."""
    ends = []
    assert run_slices(4, lambda _: 10.0, [3, 3, 3, 1],
                      lambda number, computed: ends.append(computed) or computed) == 30.0
    assert ends == [10.0, 20.0, 30.0, 30.0]
    assert run_slices(2, lambda _: 10.0, [1] * 4,
                      lambda number, computed: computed + (100.0 if number == 0 else 0.0)) == 110.0


def test_tasks_that_share_the_memory_take_no_longer_for_their_rounds():
    """Five tasks that the memory limits take five times its share, on any places, and whoever waits to send."""
    for places_ in (1, 2, 3, 5):
        assert run_slices(places_, lambda running: 10.0 * running, [1] * 5,
                          lambda number, computed: computed) == pytest.approx(50.0)
    stay = run_slices(2, lambda running: 10.0 * running, [1] * 5,
                      lambda number, computed: computed + (1.0 if number == 0 else 0.0))
    assert stay == pytest.approx(50.0)  # the memory is the other's meanwhile
    assert run_slices(5, lambda running: max(30.0, 10.0 * running), [1] * 5, lambda _, computed: computed) == 50.0


@pytest.mark.parametrize("operator", OPERATORS)
def test_losses_add_up_to_all_beyond_one_kernel(operator):
    run = run_persistent(NODE, operator, 4, SHAPES[operator])
    tasks = {"embedding-a2a": SMALL, "gemv-ar": gemv(NODE, 4, 8192, 2048),
             "gemm-a2a": gemm_tasks(NODE, 4, Shape(2048, 1024, 4096))}[operator]
    alone = alone_ns(NODE, 4, tasks)
    for one in run.techniques.values():
        assert alone + sum(one.loss_ns.values()) == pytest.approx(one.total_ns)
    assert all(loss >= -0.01 * alone for one in run.techniques.values() for loss in one.loss_ns.values())


def test_a_loss_is_what_its_cause_costs():
    free = NODE.model_copy(update={"signals": NODE.signals.model_copy(update={"mask_ns": 0.0, "poll_ns": 0.0})})
    assert fused_losses(NODE, 4, SMALL, Sending(1))["masks"] > 0
    found = fused_losses(free, 4, SMALL, Sending(1))
    assert found["flags"] == found["masks"] == 0 and found.keys() == {"flags", "masks", "registers", "transfers"}
    assert fused_losses(NODE, 4, SMALL, Sending(1, tracked=True)).keys() == {"transfers"}


@pytest.mark.parametrize("operator, shape", [("gemm-rs", "4096x12288x6144"), ("ag-gemm", "4096x6144x12288")])
def test_the_finer_flux_is_told_the_less_waits(operator, shape):
    """A copy engine sends a wave's tiles and a chunk's; tiles wait for their own rows, or for all of a GPU's."""
    m, n, k = map(int, shape.split("x"))
    node = load_machine("a100-pcie", TILES)
    efficiency = {signal: run_overlap(node, operator, Shape(m, n, k), 8, ("flux",), Choice(signal=signal))
                  .techniques["flux"].overlap_efficiency for signal in SIGNALS}
    plain = run_overlap(node, operator, Shape(m, n, k), 8, ("flux",), Choice()).techniques["flux"].overlap_efficiency
    assert efficiency["wavefront"] == efficiency["workgroup"] and efficiency["shard"] < efficiency["wave-group"]
    assert plain == efficiency["workgroup" if operator == "gemm-rs" else "shard"]


@pytest.mark.parametrize("more, message", [
    (["--operator", "gemm-rs", "--gemm", "64x64x64", "--signal", "warp"], "--signal 'warp' is unknown: allowed are"),
    (["--operator", "gemm-rs", "--gemm", "64x64x64", "--signal", "shard", "--technique", "sequential"],
     "--signal shard is for flux"),
    (["--operator", "ag-gemm", "--gemm", "64x64x64", "--signal", "shard", "--flux-pieces", "2"],
     "--signal shard does not go with --flux-pieces"),
    (["--operator", "gemm", "--gemm", "64x64x64", "--signal", "shard"], "--signal shard does not go with --operator"),
    (["--operator", "embedding-a2a", "--embedding", "256x64", "--signal", "shard", "--slice", "4"],
     "--signal shard does not go with --slice"),
    (["--operator", "embedding-a2a", "--embedding", "256x64", "--signal", "chunk"], "--signal 'chunk' is unknown")])
def test_signals_that_cannot_be_are_refused_in_a_line(more, message, error_of):
    machine = "mi210-x4" if "embedding-a2a" in more else "a100-nvlink"
    assert message in error_of("run", "--level", "event", "--machine", machine, *more)
