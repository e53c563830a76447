"""ConfigBus against its model: random transfers, legal or not, live values, the first error, resets."""

from t3sim.rtl.registers import ERRORS, STATUS_BITS, WAITS, counters, register_map
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import ApbDriver
from t3sim.testbenches.monitors import CycleMonitor
from t3sim.testbenches.reference.config_bus import ConfigBusModel, ErrorReport


def check_levels(bench: Bench, model: ConfigBusModel) -> None:
    for name, value in bench.get("levels").items():
        assert value == model.value(name), name
    for table in register_map(bench.geometry).tables:
        names = bench.elements(table.name)
        assert len(names) == table.entries
        for index, name in enumerate(names):
            assert bench.get(name) == model.entry(table.name, index), name
    assert bench.get("error") == (model.first_error is not None)


def draw_reports(bench: Bench, share: float) -> list[ErrorReport | None]:
    """Draw each reporter's report of this cycle, or none, whatever else it says."""
    reports = []
    for name in bench.elements("reports"):
        signal = bench[name]
        drawn = signal.unpack(bench.rng.getrandbits(signal.width)) | {"valid": int(bench.rng.random() < share)}
        drawn["code"] = bench.rng.randint(1, max(ERRORS.values()))
        signal.write(drawn)
        reports.append(ErrorReport(drawn["code"], **drawn["details"]) if drawn["valid"] else None)
    return reports


async def report(bench: Bench, model: ConfigBusModel) -> None:
    """Report errors from some reporters in one cycle."""
    model.report(draw_reports(bench, 0.4))
    await bench.cycle()
    draw_reports(bench, 0)


class Live:
    """Inputs that other blocks supply: other values in every cycle, and with `reports` errors in some.

    A read's answer is that of the cycle of its access.
    """

    def __init__(self, bench: Bench, model: ConfigBusModel, reports: float = 0) -> None:
        self._bench, self._model, self._share = bench, model, reports
        self._reports: list[ErrorReport | None] = []
        self.answer: tuple[bool, int] | None = None
        bench.add(self)

    def drive(self) -> None:
        bench, rng = self._bench, self._bench.rng
        status = {name: rng.getrandbits(1) for name, _ in STATUS_BITS}
        counts = {name: rng.getrandbits(32) for name, _ in counters(bench.geometry)}
        waited = {name: rng.getrandbits(1) for name, _ in WAITS}
        live = {"chosen_threshold": rng.getrandbits(7), "monitor_mean": rng.getrandbits(16)}
        for name, value in (("status", status), ("waited", waited), ("counters", counts), *live.items()):
            bench.set(name, value)
        self._values = live | status | {f"count_{name}": value for name, value in counts.items()} | {
            f"waits_{name}": value for name, value in waited.items()}
        if self._share:
            self._reports = draw_reports(bench, self._share)

    def sample(self) -> None:
        get = self._bench.get
        if get("psel") and get("penable") and not get("pready") and not get("pwrite"):
            error = self._model.first_error is not None or any(self._reports)
            self.answer = self._model.read(get("paddr"), self._values | {"error": error})
        self._model.report(self._reports)

    def reset(self) -> None:
        self.answer = None


@rounds(6)
async def random_transfers(bench: Bench) -> None:
    """Send random APB transfers while inputs change; compare every answer with the model."""
    rng, model, bus = bench.rng, ConfigBusModel(bench.geometry), ApbDriver(bench)
    registers = register_map(bench.geometry)
    offsets = [offset for offset, _, _ in registers.all_registers()]
    pulses = {"soft_reset": 0, "restart": 0, "clear_error": 0, "clear_counters": 0,
              **({"rung": 0} if bench.geometry.dma.queue_commands else {})}
    expected = dict(pulses)

    def count() -> None:
        for name in pulses:
            pulses[name] += bench.get(name)

    CycleMonitor(bench, count)
    check_levels(bench, model)  # reset values
    supplied = Live(bench, model)
    for step in range(150):
        offset = rng.choice(offsets)
        if rng.random() < 0.2:  # next to it, or anywhere
            offset = rng.choice((offset ^ 1 << rng.randrange(registers.address_bits),
                                 rng.getrandbits(registers.address_bits)))
        if rng.random() < 0.6:
            value = rng.getrandbits(32)
            refused, given = model.write(offset, value)
            for name in given & expected.keys():
                expected[name] += 1
            assert (await bus.transfer(offset, value))[0] == refused, f"{offset:#05x}"
        else:
            assert await bus.transfer(offset) == supplied.answer, f"{offset:#05x}"
        if rng.random() < 0.2:
            await report(bench, model)
        if step % 30 == 0:
            check_levels(bench, model)
    await bench.cycle(2)
    check_levels(bench, model)
    assert pulses == expected


@rounds(1)
async def every_address(bench: Bench) -> None:
    """Access every address; unknown, unaligned and read-only accesses return pslverr and change nothing."""
    model, bus = ConfigBusModel(bench.geometry), ApbDriver(bench)
    live = {name: 0 for name, _ in (*STATUS_BITS, *((f"count_{name}", 0) for name, _ in counters(bench.geometry)))}
    live |= {"chosen_threshold": 0, "monitor_mean": 0} | {f"waits_{name}": 0 for name, _ in WAITS}
    for offset in range(0, 1 << register_map(bench.geometry).address_bits, 4):
        assert await bus.transfer(offset) == model.read(offset, live), f"{offset:#05x}"


@rounds(4)
async def first_errors(bench: Bench) -> None:
    """Report several errors at once and during clearing; the model's first one stays, later ones are counted."""
    model, bus, registers = ConfigBusModel(bench.geometry), ApbDriver(bench), register_map(bench.geometry)
    shown = [register.offset for register in registers.fixed if register.name.startswith("ERROR")]
    clear = 1 << next(field.lsb for field in registers["CONTROL"].fields if field.name == "clear_error")
    for _ in range(20):
        for _ in range(2):  # the second finds the first
            await report(bench, model)
            for offset in shown:
                assert await bus.transfer(offset) == model.read(offset, {}), f"{offset:#05x}"
        model.write(registers["CONTROL"].offset, clear)
        await bus.transfer(registers["CONTROL"].offset, clear)


@rounds(4)
async def what_is_read_is_of_its_cycle(bench: Bench) -> None:
    """Change status, counters and errors in every cycle; a read returns the values of its own cycle."""
    model, bus, registers = ConfigBusModel(bench.geometry), ApbDriver(bench), register_map(bench.geometry)
    supplied = Live(bench, model, reports=0.1)
    shown = [register.offset for register in registers.fixed if register.access == "ro"]
    for _ in range(80):
        offset = bench.rng.choice((registers["STATUS"].offset, bench.rng.choice(shown)))
        assert await bus.transfer(offset) == supplied.answer, f"{offset:#05x}"
        if bench.rng.random() < 0.5:  # a report shows in STATUS only if it is the first
            await bench.reset()
            model.reset()


@rounds(8)
async def reset_in_the_middle_of_a_transfer(bench: Bench) -> None:
    """Reset in each phase of a transfer; the bus works afterwards and registers have their reset values."""
    model, bus = ConfigBusModel(bench.geometry), ApbDriver(bench)
    await bus.transfer(0x030, 3)
    await report(bench, model)
    for name, value in (("paddr", 0x034), ("pwrite", 1), ("pwdata", 2), ("psel", 1)):
        bench.set(name, value)
    for _ in range(bench.rng.randrange(4)):
        await bench.cycle()
        bench.set("penable", 1)
    bench.set("psel", 0)
    bench.set("penable", 0)
    await bench.reset()
    model.reset()
    await bench.cycle()
    assert not bench.get("pready")
    check_levels(bench, model)
