"""Text without blanks at the ends of its lines."""

import re
from typing import TextIO


class Trimmed:
    """A file in which no line ends in blanks: what only fills a terminal's width is in the way in a pipe."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        self._file.write(re.sub(r"[ \t]+(?=\n)", "", text))
        return len(text)

    def __getattr__(self, name: str):
        return getattr(self._file, name)
