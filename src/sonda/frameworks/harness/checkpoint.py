"""Checkpoints of a training: arrays and facts after every epoch, whole or not at all, with a checksum.

    DIRECTORY/epoch-00003/state.npz          the arrays by name, no pickle
    DIRECTORY/epoch-00003/checkpoint.json    epochs done, what was trained, facts, SHA-256 of state.npz

A checkpoint takes its name when everything is on the disk. The last two are kept: where the newer is broken, the older
one is used. A training is known by its settings; a checkpoint of another one is never taken for it.
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
    """Done."""
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
        """Keep the state after so many epochs. Raises SondaError where the disk is full; nothing is left then."""
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
            for _, old in self._found()[KEPT:]:
                discard(old)
        except OSError as error:
            raise SondaError(
                f"cannot keep the checkpoint of epoch {epochs} in {self.directory}: {error.strerror or error}",
                "free some space, or choose another place with --checkpoint",
            ) from None

    def read_newest(self) -> tuple[CheckpointInfo, dict[str, np.ndarray]] | None:
        """The newest that is whole; None where there is none. Raises SondaError for one of another training."""
        self._sweep()
        for _, place in self._found():
            found = self._read(place)
            if found is not None:
                return found
        return None

    def read_epoch(self, epochs: int) -> tuple[CheckpointInfo, dict[str, np.ndarray]]:
        """The state after so many epochs. Raises SondaError where they cannot be read."""
        place = self.directory / f"epoch-{epochs:05d}"
        found = self._read(place)
        if found is None:
            raise SondaError(
                f"{place} cannot be read on every node", "point --checkpoint at a directory that all of them see"
            )
        return found

    def clear(self) -> None:
        """Remove all checkpoints and, where nothing else is in it, the directory."""
        for _, place in self._found():
            discard(place)
        self._sweep()
        try:
            self.directory.rmdir()
        except OSError:
            pass  # it is not there, or somebody else's files are

    def _found(self) -> list[tuple[int, Path]]:
        """Epochs and directories, newest first."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SondaError(f"cannot read {self.directory}: {error.strerror}", "make it readable") from None
        found = [(int(match[1]), self.directory / name) for name in names if (match := NAME.fullmatch(name))]
        return sorted(found, reverse=True)

    def _read(self, place: Path) -> tuple[CheckpointInfo, dict[str, np.ndarray]] | None:
        """None, with a note, for one that is broken."""
        try:
            about = msgspec.json.decode((place / ABOUT).read_bytes(), type=CheckpointInfo)
            if about.settings != self.settings:
                raise self._other(place, about.settings)
            if _checksum(place / STATE) != about.sha256:
                raise ValueError(f"{STATE} is not what was written")
            return about, read_arrays(place / STATE)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            reason = getattr(error, "strerror", None) or error
            self.notes.append(f"the checkpoint {place} is broken ({reason}) and was not used")
            return None

    def _other(self, place: Path, settings: Mapping[str, str]) -> SondaError:
        names = [name for name in {**settings, **self.settings} if settings.get(name) != self.settings.get(name)]
        told = ", ".join(f"{name} {settings.get(name) or 'unset'}" for name in names[:3])
        return SondaError(
            f"{place} is a checkpoint of another training ({told})", "give another --checkpoint, or remove that one"
        )

    def _sweep(self) -> None:
        """Take away what killed processes left half-written."""
        for left in self.directory.glob(f"{PARTIAL}*"):
            if is_abandoned(left):
                discard(left)


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays by name as NumPy's `.npz`, on the disk when this returns; equal arrays, equal bytes. Raises OSError."""
    with open(path, "wb") as file:
        # Not by `savez`: a name must not meet one of its own arguments, and it writes the time of day.
        with zipfile.ZipFile(file, "w") as archive:
            for name, value in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, np.asanyarray(value), allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """What `write_arrays` wrote. Raises OSError or ValueError."""
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
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
        pass  # some network file systems refuse this of directories
    finally:
        os.close(descriptor)
