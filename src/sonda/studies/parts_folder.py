"""The folder of an exploration in progress: a file for each part that has come, so that a stopped one goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from sonda.record.errors import SondaError
from sonda.record.partial import discard, write_whole
from sonda.record.store import Store
from sonda.studies.explored_part import Part
from sonda.studies.lock import only_one

FOLDER = "explorations"


class PartsFolder:
    """Parts by number. They appear whole; what cannot be read is not there."""

    def __init__(self, store: Store, *about: Any) -> None:
        """`about` is all that makes one exploration another."""
        identity = hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:16]
        self.path = store.root / FOLDER / identity
        self._lock = store.root / FOLDER / f"{identity}.lock"

    def alone(self) -> Any:
        """Nobody else works on the same exploration meanwhile; raises SondaError where somebody does."""
        return only_one(self._lock, "this exploration")

    def known(self) -> Iterator[tuple[int, Part]]:
        """Parts that an earlier start left, by number."""
        for path in sorted(self.path.glob("*.part")):
            try:
                yield int(path.stem), msgspec.msgpack.decode(path.read_bytes(), type=Part)
            except (OSError, ValueError, msgspec.DecodeError):
                continue

    def add(self, number: int, part: Part) -> None:
        """Raises SondaError when it cannot be written."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.path / f"{number}.part", msgspec.msgpack.encode(part))
        except OSError as error:
            raise SondaError(
                f"cannot keep points in {self.path}: {error.strerror or error}",
                "free some space, or set $SONDA_HOME; what is there stays",
            ) from None

    def table(self, number: int) -> Any:
        """The points of a part as an Arrow table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        part = msgspec.msgpack.decode((self.path / f"{number}.part").read_bytes(), type=Part)
        return pq.read_table(pa.BufferReader(part.table))

    def remove(self) -> None:
        discard(self.path)
