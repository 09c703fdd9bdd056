"""Patches of remedies: what they write, and where they cannot be written."""

from __future__ import annotations

import subprocess

import pytest

from sonda.targets.program.source_patch import make_patch

SOURCE = '''\
"""Trains."""
from torch import nn, optim
from torch.utils.data import DataLoader


def build(size):
    model = nn.Conv2d(3, size, 3)  # one layer
    return model


loader = DataLoader(
    data,
    batch_size=args.batch + 1,
    shuffle=True,
)
old = DataLoader(data, 32, True, None, None, 0)
given = DataLoader(data, **settings)
optimizer = optim.Adam(
    (weight for weight in model.parameters()), lr=1e-3)
'''


def survey(tmp_path, source=SOURCE, **noted):
    path = tmp_path / "train.py"
    path.write_text(source)

    def at(text, **facts):
        return {"file": str(path), "line": source[: source.index(text)].count("\n") + 1, **facts}

    loader = {"workers": 0, "batch": 32, "samples": 10_000, "pin": False}
    return {
        "loaders": [at(text, **loader) for text in noted.get("loaders", ())],
        "optimizers": [at(text, name="Adam", can_fuse=True) for text in noted.get("optimizers", ())],
        "models": [at(text, device="cpu", tensor=True) for text in noted.get("models", ())],
        "set_threads": {},
        "script": {"file": str(path), "line": 1},
    }


def added(tmp_path, remedy, value=None, **noted):
    """The lines that the patch adds, once `git apply` has taken it."""
    patch = make_patch(remedy, value, survey(tmp_path, **noted), tmp_path)
    assert patch.text, patch
    subprocess.run(["git", "apply", "-"], input=patch.text, text=True, check=True, cwd=tmp_path)
    return [line[1:] for line in patch.text.splitlines() if line.startswith("+") and not line.startswith("+++")]


def test_workers_are_added_behind_the_last_argument(tmp_path):
    lines = added(tmp_path, "workers", 2, loaders=["loader = "])
    assert lines == ["    shuffle=True, num_workers=2, persistent_workers=True,"]


def test_workers_by_position_are_replaced(tmp_path):
    lines = added(tmp_path, "workers", 4, loaders=["old = "])
    assert lines == ["old = DataLoader(data, 32, True, None, None, 4, persistent_workers=True)"]


def test_a_batch_that_is_an_expression_is_multiplied(tmp_path):
    assert added(tmp_path, "batch", 2, loaders=["loader = "]) == ["    batch_size=2 * (args.batch + 1),"]
    assert added(tmp_path, "batch", 2, loaders=["old = "]) == ["old = DataLoader(data, 64, True, None, None, 0)"]


def test_an_optimizer_is_fused(tmp_path):
    lines = added(tmp_path, "fused", optimizers=["optimizer = "])
    assert lines == ["    (weight for weight in model.parameters()), lr=1e-3, fused=True)"]


@pytest.mark.parametrize(
    ("remedy", "lines"),
    [
        ("compile", ["    model.compile()"]),
        ("channels_last", ["import torch", "    model.to(memory_format=torch.channels_last)"]),
    ],
)
def test_a_model_is_changed_behind_the_line_that_makes_it(tmp_path, remedy, lines):
    assert added(tmp_path, remedy, models=["model = "]) == lines


def test_threads_stand_behind_the_imports_where_the_program_sets_none(tmp_path):
    assert added(tmp_path, "threads", 2) == ["import torch", "torch.set_num_threads(2)"]


def test_arguments_that_are_unpacked_are_told_and_not_changed(tmp_path):
    patch = make_patch("pin", None, survey(tmp_path, loaders=["given = "]), tmp_path)
    assert patch.text == ""
    assert patch.change == "DataLoader(..., pin_memory=True)"
    assert patch.place == "train.py:17"


def test_a_file_with_other_line_ends_is_left_alone(tmp_path):
    noted = survey(tmp_path, loaders=["old = "])
    (tmp_path / "train.py").write_bytes(SOURCE.replace("\n", "\r\n").encode())
    assert make_patch("workers", 2, noted, tmp_path).text == ""
