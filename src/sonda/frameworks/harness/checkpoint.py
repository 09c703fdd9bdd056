"""Checkpoints of a training: arrays and facts after every epoch, complete or not at all, with a checksum.

    DIRECTORY/epoch-00003/state.npz          the arrays by name, no pickle
    DIRECTORY/epoch-00003/checkpoint.json    epochs done, what was trained, facts, SHA-256 of state.npz

A checkpoint gets its name when everything is on the disk. The last two are kept, so that the older one can be used
where the newer is broken. The settings identify a training: a checkpoint with other settings is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sonda.record.errors import SondaError
from sonda.record.files.partial import PARTIAL, discard, is_abandoned, partial_path

STATE, ABOUT = "state.npz", "checkpoint.json"
KEPT = 2
NAME = re.compile(r"epoch-(\d{5,})")
HASHED_AT_ONCE = 1 << 22


class CheckpointInfo(msgspec.Struct, kw_only=True):
    """What `checkpoint.json` holds."""

    epochs: int
    """Epochs done."""
    settings: dict[str, str]
    facts: dict[str, Any]
    sha256: str


class Checkpoints:
    """The checkpoints of one training in a directory of their own. `notes` names those that could not be used."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self.settings = dict(settings)
        self.notes: list[str] = []

    def save(self, epochs: int, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        """Save the state after so many epochs. Raises SondaError where the disk is full, and leaves nothing then."""
        partial = partial_path(self.directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            try:
                partial.mkdir()
                write_arrays(partial / STATE, arrays)
                about = CheckpointInfo(
                    epochs=epochs, settings=self.settings, facts=dict(facts), sha256=_checksum(partial / STATE)
                )
                (partial / ABOUT).write_bytes(msgspec.json.encode(about))
                _sync(partial / ABOUT)
                place = self.directory / f"epoch-{epochs:05d}"
                discard(place)
                partial.rename(place)
                _sync(self.directory)
            finally:
                discard(partial)
            for _, old in self._list()[KEPT:]:
                discard(old)
        except OSError as error:
            raise SondaError(
                f"cannot keep the checkpoint of epoch {epochs} in {self.directory}: {error.strerror or error}",
                "free some space, or choose another place with --checkpoint",
            ) from None

    def read_newest(self) -> tuple[CheckpointInfo, dict[str, np.ndarray]] | None:
        """Read the newest complete checkpoint; None without any. Raises SondaError for one of another training."""
        self._sweep()
        for _, place in self._list():
            checkpoint = self._read(place)
            if checkpoint is not None:
                return checkpoint
        return None

    def read_epoch(self, epochs: int) -> tuple[CheckpointInfo, dict[str, np.ndarray]]:
        """Read the state after so many epochs. Raises SondaError where it cannot be read."""
        place = self.directory / f"epoch-{epochs:05d}"
        checkpoint = self._read(place)
        if checkpoint is None:
            raise SondaError(
                f"{place} cannot be read on every node", "point --checkpoint at a directory that all of them see"
            )
        return checkpoint

    def clear(self) -> None:
        """Remove all checkpoints, and the directory if it is empty then."""
        for _, place in self._list():
            discard(place)
        self._sweep()
        try:
            self.directory.rmdir()
        except OSError:
            pass  # it does not exist, or holds other files

    def _list(self) -> list[tuple[int, Path]]:
        """Epochs and directories of all checkpoints, the newest first."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SondaError(f"cannot read {self.directory}: {error.strerror}", "make it readable") from None
        places = [(int(match[1]), self.directory / name) for name in names if (match := NAME.fullmatch(name))]
        return sorted(places, reverse=True)

    def _read(self, place: Path) -> tuple[CheckpointInfo, dict[str, np.ndarray]] | None:
        """Read a checkpoint; None, with a note, for a broken one."""
        try:
            about = msgspec.json.decode((place / ABOUT).read_bytes(), type=CheckpointInfo)
            if about.settings != self.settings:
                raise self._refuse(place, about.settings)
            if _checksum(place / STATE) != about.sha256:
                raise ValueError(f"{STATE} is not what was written")
            return about, read_arrays(place / STATE)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            reason = getattr(error, "strerror", None) or error
            self.notes.append(f"the checkpoint {place} is broken ({reason}) and was not used")
            return None

    def _refuse(self, place: Path, settings: Mapping[str, str]) -> SondaError:
        """The error for a checkpoint with other settings; it names the first three."""
        names = [name for name in {**settings, **self.settings} if settings.get(name) != self.settings.get(name)]
        differences = ", ".join(f"{name} {settings.get(name) or 'unset'}" for name in names[:3])
        return SondaError(
            f"{place} is a checkpoint of another training ({differences})",
            "give another --checkpoint, or remove that one",
        )

    def _sweep(self) -> None:
        """Remove what killed processes left half-written."""
        for partial in self.directory.glob(f"{PARTIAL}*"):
            if is_abandoned(partial):
                discard(partial)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name as NumPy's `.npz`; equal arrays give equal bytes. On return they are on the disk.

    Raises OSError.
    """
    with open(path, "wb") as file:
        # `savez` would refuse names of its own arguments, and writes the time of day.
        with zipfile.ZipFile(file, "w") as archive:
            for name, value in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asanyarray(value), allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read what `write_arrays` wrote. Raises OSError or ValueError."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (zipfile.BadZipFile, EOFError, KeyError) as error:
        raise ValueError(str(error)) from None


def _checksum(path: Path) -> str:
    checksum = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(HASHED_AT_ONCE):
            checksum.update(piece)
    return checksum.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some network file systems refuse to sync directories
    finally:
        os.close(descriptor)
