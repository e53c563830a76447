"""The line: what a memory request carries at most, and what moves on a link at once."""

LINE_BYTES = 64
LINE_SHIFT = (LINE_BYTES - 1).bit_length()


def lines_of(size_bytes):
    """Count the lines that this many bytes touch from a line's first byte on; for numbers and arrays."""
    return -(-size_bytes // LINE_BYTES)
