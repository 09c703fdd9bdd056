"""Points that failed, with their reasons, kept beside the runs until they succeed."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sonda.record.errors import SondaError
from sonda.record.partial import write_whole


class Failures:
    """Reasons by point identity, in one small file that is replaced whole at every change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.reasons = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError):
            # The points they speak of are measured again at the next start, so a lost file loses nothing else.
            self.reasons = {}

    def add(self, identity: str, reason: str) -> None:
        self.reasons[identity] = reason
        self._write()

    def forget(self, identity: str) -> None:
        if self.reasons.pop(identity, None) is not None:
            self._write()

    def _write(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, msgspec.json.format(msgspec.json.encode(self.reasons), indent=1))
        except OSError as error:
            raise SondaError(
                f"cannot write {self.path}: {error.strerror}",
                "free some space, or point $SONDA_HOME at a directory that can be written",
            ) from None
