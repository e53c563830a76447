"""MemoryCodec against its model: words as they were written, with one bit flipped, with two, and anything."""

from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.reference.memory_codec import MemoryCodecModel


@rounds(4, cover=("right", "corrected", "uncorrectable"))
async def random_words(bench: Bench) -> None:
    """Decode random words, and encoded ones with up to four flips; compare with the model."""
    rng, tracker = bench.rng, bench.geometry.tracker
    protection = "secded" if tracker.protection == "none" else tracker.protection
    model = MemoryCodecModel(protection, tracker.tag_bits + 1)
    for number in range(300):
        data = rng.getrandbits(model.data_bits)
        bench.set("data", data)
        await bench.settle()
        word = bench.get("word")
        assert word == model.encode(data), f"{data:#x}"
        for _ in range(number % 4):
            word ^= 1 << rng.randrange(model.word_bits)
        bench.set("stored", word)
        await bench.settle()
        found = tuple(bench.get(name) for name in ("found", "corrected", "uncorrectable"))
        assert found == model.decode(word), f"stored {word:#x}"
        assert bench.get("wrong") == (found[1] or found[2]), f"stored {word:#x}"
        bench.reach("corrected" if found[1] else "uncorrectable" if found[2] else "right")
