"""Checkpoints: whole or not at all, checked, never mistaken for another training's."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sonda.frameworks.harness import checkpoint
from sonda.frameworks.harness.checkpoint import Checkpoints, read_arrays, write_arrays
from sonda.record.errors import SondaError

SETTINGS = {"workload": "cnn", "seed": "0"}


def arrays(value: float) -> dict[str, np.ndarray]:
    return {"model/weight": np.full((3, 2), value), "model/file": np.array(7), "random": np.arange(5, dtype=np.uint8)}


def kept(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_the_newest_is_found_with_its_facts(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "some" / "place", SETTINGS)
    assert checkpoints.read_newest() is None
    for epoch in (1, 2, 3):
        checkpoints.save(epoch, arrays(epoch), {"walks": [epoch]})
    found = checkpoints.read_newest()
    assert found is not None
    about, state = found
    assert (about.epochs, about.facts) == (3, {"walks": [3]})
    assert {name: value.tolist() for name, value in state.items()} == {
        name: value.tolist() for name, value in arrays(3).items()
    }
    assert state["random"].dtype == np.uint8
    assert kept(tmp_path / "some" / "place") == ["epoch-00002", "epoch-00003"], "the last two"


@pytest.mark.parametrize("harm", ["cut", "changed", "no json", "empty", "gone"])
def test_a_broken_one_is_named_and_the_one_before_is_used(tmp_path: Path, harm: str) -> None:
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    for epoch in (1, 2):
        checkpoints.save(epoch, arrays(epoch), {})
    newest = tmp_path / "epoch-00002"
    state = newest / "state.npz"
    data = state.read_bytes()
    if harm == "cut":
        state.write_bytes(data[:-100])
    elif harm == "changed":
        state.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    elif harm == "no json":
        (newest / "checkpoint.json").write_text("{")
    elif harm == "empty":
        state.write_bytes(b"")
    else:
        (newest / "checkpoint.json").unlink()
    found = checkpoints.read_newest()
    assert found is not None and found[0].epochs == 1
    assert found[1]["model/weight"][0, 0] == 1
    (note,) = checkpoints.notes
    assert note.startswith(f"the checkpoint {newest} is broken (") and note.endswith(") and was not used")


def test_one_of_another_training_is_refused(tmp_path: Path) -> None:
    Checkpoints(tmp_path, SETTINGS).save(1, arrays(1), {})
    with pytest.raises(SondaError) as caught:
        Checkpoints(tmp_path, {**SETTINGS, "seed": "1", "--batch": "8"}).read_newest()
    assert "epoch-00001 is a checkpoint of another training (seed 0, --batch unset); give" in str(caught.value)


@pytest.mark.parametrize("moment", ["write", "name"])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    checkpoints.save(1, arrays(1), {})

    def full(*_words: Any, **_more: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if moment == "write":
        monkeypatch.setattr(checkpoint.np.lib.format, "write_array", full)
    else:
        monkeypatch.setattr(checkpoint.msgspec.json, "encode", full)
    with pytest.raises(SondaError) as caught:
        checkpoints.save(2, arrays(2), {})
    assert str(caught.value) == (
        f"cannot keep the checkpoint of epoch 2 in {tmp_path}: No space left on device; "
        "free some space, or choose another place with --checkpoint"
    )
    assert kept(tmp_path) == ["epoch-00001"]
    monkeypatch.undo()
    found = checkpoints.read_newest()
    assert found is not None and found[0].epochs == 1


def test_what_a_killed_process_left_is_taken_away(tmp_path: Path) -> None:
    left = tmp_path / f".partial-{os.uname().nodename}-999999999-abcdef"
    left.mkdir()
    assert Checkpoints(tmp_path, SETTINGS).read_newest() is None
    assert kept(tmp_path) == []


def test_clearing_leaves_other_files_alone(tmp_path: Path) -> None:
    place = tmp_path / "checkpoints"
    checkpoints = Checkpoints(place, SETTINGS)
    checkpoints.save(1, arrays(1), {})
    (place / "thesis.txt").touch()
    checkpoints.clear()
    assert kept(place) == ["thesis.txt"]
    (place / "thesis.txt").unlink()
    checkpoints.clear()
    assert not place.exists()


def test_equal_arrays_give_equal_bytes_and_no_pickle(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a", arrays(1))
    write_arrays(tmp_path / "b", arrays(1))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_arrays(tmp_path / "c", {"x": np.array([object()])})
    np.savez(tmp_path / "d.npz", x=np.array([object()]))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_arrays(tmp_path / "d.npz")
