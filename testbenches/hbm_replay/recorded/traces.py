"""The request traces named in workloads.json.

Every random number comes from SplitMix64 written out below (not from numpy's generators), so the traces are the same
bytes for ever; results.json has their SHA-256.

Geometry: 1 channel, 4 bank groups x 4 banks, 32768 rows, 32 columns of 64 B per row (2 KiB page), 1 GiB. MAP is the
address map, most significant field first: "ro_bg_ba_co" or "ro_ba_co_bg" (bank group on the lowest bits).
"""

import numpy as np

LINE, COLS, NBG, NBA, ROWS = 64, 32, 4, 4, 32768
LINES = COLS * NBG * NBA * ROWS          # 2**24 lines = 1 GiB
MAPS = ("ro_bg_ba_co", "ro_ba_co_bg")
GOLD = np.uint64(0x9E3779B97F4A7C15)


def splitmix(seed, n, first=0):
    """Return `n` 64-bit numbers of the SplitMix64 stream of `seed`, from index `first`."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.arange(first + 1, first + n + 1, dtype=np.uint64)) * GOLD
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def encode(m, bg, ba, row, col):
    """Convert (bank group, bank, row, column) to a 64-byte line number under map m."""
    bg, ba, row, col = (np.asarray(x, dtype=np.int64) for x in (bg, ba, row, col))
    if m == "ro_bg_ba_co":
        return ((row * NBG + bg) * NBA + ba) * COLS + col
    if m == "ro_ba_co_bg":
        return ((row * NBA + ba) * COLS + col) * NBG + bg
    raise ValueError(m)


def decode(m, line):
    """Convert a 64-byte line number to (bank group, bank, row, column) under map m."""
    line = np.asarray(line, dtype=np.int64)
    if m == "ro_bg_ba_co":
        return line // (COLS * NBA) % NBG, line // COLS % NBA, line // (COLS * NBA * NBG), line % COLS
    if m == "ro_ba_co_bg":
        return line % NBG, line // (NBG * COLS) % NBA, line // (NBG * COLS * NBA), line // NBG % COLS
    raise ValueError(m)


def below(rnd, pct_num, pct_den):
    """Draw whether something of probability pct_num/pct_den happens, in integer arithmetic only."""
    return (rnd >> np.uint64(32)) % np.uint64(pct_den) < np.uint64(pct_num)


# Each kind returns (line numbers, is_write, cycle), three arrays of length n.

def k_seq(p, m):
    i = np.arange(p["n"])
    return (p["start_line"] + i) % LINES, np.full(p["n"], p["op"] == "W"), np.zeros(p["n"], int)


def k_rand(p, m):
    n = p["n"]
    line = (splitmix(p["seed"], n) >> np.uint64(40)).astype(np.int64)   # 24 bits = LINES
    wr = below(splitmix(p["seed"] + 7919, n), p["write_pct"], 100)
    return line, wr, np.zeros(n, int)


def k_stride(p, m):
    k = np.arange(p["n"], dtype=np.int64) * p["stride_bytes"]
    size = LINES * LINE
    a = (k % size + k // size * LINE + p["start_line"] * LINE) % size
    return a // LINE, np.full(p["n"], p["op"] == "W"), np.zeros(p["n"], int)


def k_hits(p, m):
    """Hit open rows only: rotate over a few banks, one row each, columns round robin."""
    i = np.arange(p["n"])
    b = np.asarray(p["banks"])[i % len(p["banks"])]
    line = encode(m, b[:, 0], b[:, 1], p["row"], i // len(p["banks"]) % COLS)
    return line, np.full(p["n"], p["op"] == "W"), np.zeros(p["n"], int)


def k_conflict(p, m):
    """Access one bank, a new row with every request."""
    n = p["n"]
    i = np.arange(n, dtype=np.int64)
    col = (splitmix(p["seed"], n) >> np.uint64(59)).astype(np.int64)     # 5 bits
    line = encode(m, p["bg"], p["ba"], (p["row0"] + i * p["row_step"]) % ROWS, col)
    return line, below(splitmix(p["seed"] + 7919, n), p["write_pct"], 100), np.zeros(n, int)


def k_pingpong(p, m):
    """Access one bank, two rows in alternation; after 32 columns of each, two new rows."""
    n = p["n"]
    i = np.arange(n, dtype=np.int64)
    row = (p["row0"] + 2 * (i // (2 * COLS)) + (i % 2)) % ROWS
    return encode(m, p["bg"], p["ba"], row, i // 2 % COLS), np.zeros(n, bool), np.zeros(n, int)


def k_dual(p, m):
    """Access two sequential streams starting at the same bank in different rows."""
    rd, wr = p["pattern"]                       # e.g. [1, 1]: 1 read, 1 write, ...
    i = np.arange(p["n"], dtype=np.int64)
    isw = i % (rd + wr) >= rd
    idx = np.where(isw, np.cumsum(isw) - 1, np.cumsum(~isw) - 1)
    base = np.where(isw, p["write_row"], p["read_row"]) * (COLS * NBG * NBA)
    return (base + idx) % LINES, isw, np.zeros(p["n"], int)


def k_load(p, m):
    """Access chunks of `chunk_lines` consecutive lines at random aligned places, in an open loop.

    One chunk starts in a cycle with probability p = rate/chunk.
    """
    n, c = p["n"], p["chunk_lines"]
    nch = -(-n // c)
    num, den = p["rate_num"], p["rate_den"] * c
    t, first, got = [], 0, 0
    while got < nch:
        k = np.flatnonzero(below(splitmix(p["seed"] + 104729, 1 << 18, first), num, den)) + first
        t.append(k)
        got += len(k)
        first += 1 << 18
    t = np.concatenate(t)[:nch]
    base = (splitmix(p["seed"], nch) >> np.uint64(40)).astype(np.int64) // c * c
    line = (base[:, None] + np.arange(c)).reshape(-1)[:n]
    wr = np.repeat(below(splitmix(p["seed"] + 7919, nch), p["write_pct"], 100), c)[:n]
    return line, wr, np.repeat(t, c)[:n]


def k_gemm(p, m):
    """Read several sequential input streams in turn, chunk by chunk, then write a sequential burst; repeated.

    Gaps are in cycles per request; 0 = not paced. The write burst starts when the read phase's last slot is over.
    """
    R, W, S, c = p["read_lines"], p["write_lines"], len(p["read_rows"]), p["chunk_lines"]
    per_row = COLS * NBG * NBA
    out = []
    pos, wpos, t = [0] * S, 0, 0
    for _ in range(p["phases"]):
        j = np.arange(R, dtype=np.int64)
        s = j // c % S
        within = j // (c * S) * c + j % c
        line = np.asarray(p["read_rows"])[s] * per_row + np.asarray(pos)[s] + within
        tr = t + j * p["read_gap"]
        pos = [pos[x] + int((s == x).sum()) for x in range(S)]
        t += R * p["read_gap"]
        k = np.arange(W, dtype=np.int64)
        wl = p["write_row"] * per_row + wpos + k
        tw = t + k * p["write_gap"]
        wpos += W
        t += W * p["write_gap"] + p["idle_after"]
        out.append((line, np.zeros(R, bool), tr))
        out.append((wl, np.ones(W, bool), tw))
    a, b, d = (np.concatenate(x) for x in zip(*out))
    return a % LINES, b, d


KINDS = {k[2:]: f for k, f in globals().items() if k.startswith("k_")}
MAPPED = {"hits", "conflict", "pingpong"}       # the only kinds whose addresses depend on MAP


def trace(w, m):
    """Return the trace of a line of workloads.json: (line numbers, is_write, cycle)."""
    return KINDS[w["kind"]](w, m)


def text(line, wr, cycle, line_bytes=LINE):
    """Write the trace as a file: `0xADDRESS READ|WRITE CYCLE` per request."""
    requests = zip(np.asarray(line, np.int64).tolist(), np.asarray(wr).tolist(), np.asarray(cycle).tolist())
    return "".join(f"0x{a * line_bytes:X} {'WRITE' if x else 'READ'} {c}\n" for a, x, c in requests)
