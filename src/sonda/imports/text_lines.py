"""The lines of a file, packed by gzip or not, whatever its size."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from sonda.imports.kineto.text import open_text
from sonda.record.errors import SondaError

PIECE = 1 << 20
"""Bytes read at once."""
LONGEST = 1 << 24
"""Bytes of a line; what is longer is no row of anything, and is given in pieces."""


class TextLines:
    """Lines with their ends. The last has none where the file ends without."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cut = False
        """Known at the end: the packed file is not whole, and this is what it still holds."""

    def __iter__(self) -> Iterator[bytes]:
        """Raises SondaError when the file cannot be read."""
        rest = b""
        with open_text(self._path) as stream:
            while piece := self._read(stream.read):
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield line + b"\n"
                if len(rest) > LONGEST:
                    yield rest
                    rest = b""
        if rest:
            yield rest

    def _read(self, read: Callable[[int], bytes]) -> bytes:
        try:
            return read(PIECE)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.cut = True
            return b""
        except OSError as error:
            raise SondaError(f"cannot be read: {error.strerror or error}", "copy it again") from None
