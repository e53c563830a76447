"""HeadExchange against its model: heads that move at any rate, links of any, listeners that change, restarts."""

from t3sim.rtl.registers import ERRORS
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.reference.head_exchange import HeadExchangeModel, HeadPacket, Listener


class Exchange:
    """The block beside its model, cycle by cycle."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.model = bench, HeadExchangeModel(bench.geometry)
        self.devices = 1 << bench.geometry.dma.device_bits
        self.peers = bench.geometry.dma.peers

    def listeners(self) -> list[Listener]:
        rng = self.bench.rng
        return [Listener(rng.randrange(self.devices), rng.randrange(4) > 0) for _ in range(self.peers)]

    async def cycle(self, **inputs) -> HeadPacket | None:
        """One cycle; returns what leaves in it."""
        bench = self.bench
        for name in ("head", "epoch", "number"):
            bench.set(name, inputs[name])
        for peer in range(self.peers):
            bench.set(f"told[{peer}]", inputs["told"][peer]._asdict())
            bench.set(f"heard[{peer}]", inputs["heard"][peer])
        arriving = inputs["arriving"]
        bench.set("leaving.ready", int(inputs["taken"]))
        bench.set("arriving.valid", int(arriving is not None))
        bench.set("arriving.payload", arriving._asdict() | {"sender": inputs["sender"]} if arriving else
                  bench.rng.getrandbits(bench["arriving.payload"].width))
        await bench.settle()
        shown = self.model.step(**inputs)
        leaving = bench.get("leaving.payload") if bench.get("leaving.valid") else None
        expected = shown.leaving and shown.leaving._asdict()
        assert leaving == expected, f"cycle {bench.now}: expected to leave {expected}, got {leaving}; {inputs}"
        known = tuple((bench.get(f"peer_heads[{peer}]"), bench.get(f"peer_epochs[{peer}]"))
                      for peer in range(self.peers))
        assert known == shown.known and bench.get("busy") == shown.busy and bench.get("arriving.ready")
        error = bench.get("error")
        assert bench.get("news") == shown.news and error["valid"] == (shown.refused is not None)
        if shown.refused:
            assert error["code"] == ERRORS["head_refused"] and error["details"]["address"] == shown.refused.head
        await bench.edge()
        bench.reach("a head waits for the link", shown.leaving is not None and not inputs["taken"])
        bench.reach("a head is heard", shown.news)
        bench.reach("a head is refused", shown.refused is not None)
        bench.reach("nobody listens", arriving is not None and arriving.source not in inputs["heard"])
        return shown.leaving if inputs["taken"] else None


@rounds(12, cover=("a head waits for the link", "a head is heard", "a head is refused", "nobody listens"))
async def random_heads(bench: Bench) -> None:
    """Change heads, epochs, listeners and links at random; compare every packet and known head with the model."""
    rng, exchange = bench.rng, Exchange(bench)
    link, moves = rng.choice((0.05, 0.5, 1.0)), rng.choice((0.05, 0.5, 1.0))
    head = epoch = number = 0
    told, heard = exchange.listeners(), [0] * exchange.peers
    for cycle in range(bench.cut or 300):
        if cycle % 20 == 0:
            told = rng.choice((told, exchange.listeners()))
            heard = [rng.randrange(exchange.devices) for _ in range(exchange.peers)]
            number = rng.randrange(exchange.devices)
            epoch = rng.choice((epoch, 0, 1 << rng.randrange(8), rng.getrandbits(8)))
        if rng.random() < moves:
            head = rng.choice(((head + 1) % (1 << bench["head"].width), rng.getrandbits(bench["head"].width)))
        arriving, sender = None, rng.randrange(exchange.devices)
        if rng.random() < 0.5:
            known, kernel = rng.choice(exchange.model.known)
            arriving = HeadPacket(rng.choice((known + 1, known, rng.getrandbits(bench["head"].width)))
                                  % (1 << bench["head"].width), rng.choice((kernel, kernel + 1, rng.getrandbits(8)))
                                  % 256, rng.choice((*heard, rng.randrange(exchange.devices))),
                                  rng.randrange(exchange.devices))
            sender = rng.choice((sender, *3 * (arriving.source,)))
        await exchange.cycle(head=head, epoch=epoch, number=number, told=told, heard=heard,
                             taken=rng.random() < link, arriving=arriving, sender=sender)


@rounds(4)
async def the_last_head_arrives(bench: Bench) -> None:
    """Slow the link down; every listener has the last head in the end, and then nothing leaves."""
    rng, exchange = bench.rng, Exchange(bench)
    devices = rng.sample(range(exchange.devices), exchange.peers)
    told, known, head = [Listener(device, 1) for device in devices], dict.fromkeys(devices, 0), 0
    idle = {"epoch": 0, "number": 1, "told": told, "heard": [0] * exchange.peers, "arriving": None, "sender": 0}
    for _ in range(bench.cut or 200):
        head = min(head + (rng.random() < 0.5), (1 << bench["head"].width) - 1)
        if packet := await exchange.cycle(head=head, taken=rng.random() < 0.1, **idle):
            assert packet.head >= known[packet.device]
            known[packet.device] = packet.head
    for _ in range(exchange.peers + 4):
        if packet := await exchange.cycle(head=head, taken=True, **idle):
            known[packet.device] = packet.head
    assert set(known.values()) == {head} and not bench.get("busy")
