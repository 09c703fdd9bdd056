"""Files for people and other programs: written beside their place, then renamed, so that nobody sees half of one."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sonda.record.errors import SondaError


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write bytes to; it takes its name only when everything was written. `.gz` names are compressed.

    Raises SondaError when it cannot be written; nothing is left behind then.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # No name and no time inside the compressed file: the same run gives the same bytes.
            with open(partial, "wb") as raw:
                if path.suffix == ".gz":
                    with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=3, mtime=0) as stream:
                        yield stream  # type: ignore[misc]
                else:
                    yield raw
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SondaError(f"cannot write {path}: {reason}", "choose another place with -o, or free some space") from None
