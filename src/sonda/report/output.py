"""Files for people and other programs: written beside their place, then renamed, so that nobody sees half of one."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from sonda.record.errors import SondaError
from sonda.record.files.partial import partial_path


def refuse_folders(*paths: Path | None) -> None:
    """Raise SondaError where a folder stands in the place of a file: what takes long asks before it begins."""
    for path in paths:
        if path is not None and path.is_dir():
            raise SondaError(f"{path} is a folder, not a file to write", "name a file in it")


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write bytes to; it takes its name only when everything was written. `.gz` names are compressed.

    A link is followed, and what is no file, such as /dev/null, is written to as it is. Raises SondaError when it cannot
    be written; nothing is left behind then.
    """
    try:
        refuse_folders(path)
        if path.exists() and not path.is_file():
            with _open(path, path) as stream:
                yield stream
            return
        place = Path(os.path.realpath(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_path(place.parent)
        try:
            with _open(partial, path) as stream:
                yield stream
            os.replace(partial, place)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        # Where a folder is to be made, a file may stand: "File exists" would be no cause.
        reason = "Not a directory" if isinstance(error, FileExistsError) else error.strerror or str(error)
        raise SondaError(f"cannot write {path}: {reason}", "choose another place, or free some space") from None


@contextmanager
def _open(place: Path, path: Path) -> Iterator[IO[bytes]]:
    with open(place, "wb") as raw:
        if path.suffix != ".gz":
            yield raw
            return
        # No name and no time inside the compressed file: the same run gives the same bytes.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=3, mtime=0) as stream:
            yield stream  # type: ignore[misc]
