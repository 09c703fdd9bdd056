"""Evaluations are called what people call them: validation as often as it comes, and test what comes once at the end.

The counts are made by reading `programs/evaluations.py`: four batches of training an epoch, two of an evaluation.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from observed import Nursery, check_structure, seen

pytest.importorskip("torch")

TRAIN, VALIDATE, TEST = ("train", 4), ("validate", 2), ("test", 2)
EVERY = [TRAIN, VALIDATE] * 3
AGAIN = [("validate", 4)]
"""Without loaders, and where a trainer names them, nothing parts a validation from the one that follows it."""
CASES = {
    "every_epoch": EVERY,
    "once_more": [*EVERY, VALIDATE],
    "and_test": [*EVERY, VALIDATE, TEST],
    "by_steps": [("train", 5), VALIDATE] * 2 + [("train", 2), TEST],
    "own_rows": [*EVERY, VALIDATE],
    "listed": [*EVERY, VALIDATE],
    "made_anew": [*EVERY, VALIDATE],
    "split_anew": EVERY,
    "whole_tensor": [*EVERY[:-1], *AGAIN],
    "whole_tensor_and_test": [*EVERY, TEST],
    "test_only": [("train", 12), TEST],
}


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return Nursery()


@pytest.mark.parametrize("name", CASES)
def test_evaluations_are_validation_and_test_as_people_name_them(nursery: Nursery, tmp_path: Path, name: str) -> None:
    bare = nursery.run("evaluations", name, directory=tmp_path / "bare", observe=False)
    observed = nursery.run("evaluations", name, directory=tmp_path / "observed", observe=True)
    assert bare.code == observed.code == 0, observed.output
    assert observed.output == bare.output
    assert observed.assembly is not None
    check_structure(observed.assembly.spans)
    assert seen(observed.assembly.spans).parts == CASES[name]


STANDS_IN = """
import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model, train, validation):
        self.model, self.data = model, (train, validation)

    def train(self):
        optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        for _ in range(3):
            for x, y in DataLoader(self.data[0], batch_size=4):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(self.model(x), y).backward()
                optimizer.step()
            self.evaluate()

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix="eval"):
        with torch.no_grad():
            for x, _ in DataLoader(eval_dataset or self.data[1], batch_size=4):
                self.model(x)

    def predict(self, test_dataset, ignore_keys=None, metric_key_prefix="test"):
        with torch.no_grad():
            for x, _ in DataLoader(test_dataset, batch_size=4):
                self.model(x)
"""
"""The methods of `transformers.Trainer` that evaluate, by their names and parameters."""
PROGRAM = """
import sys

import torch
from torch.utils.data import TensorDataset
from transformers.trainer import Trainer


def rows(count):
    return TensorDataset(torch.randn(count, 6), torch.arange(count) % 3)


validation, other = rows(8), rows(8)
trainer = Trainer(torch.nn.Linear(6, 3), rows(16), validation)
trainer.train()
eval(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        ("trainer.evaluate()", AGAIN),
        ("trainer.evaluate(other)", AGAIN),
        ("trainer.evaluate(validation, metric_key_prefix='test')", [VALIDATE, TEST]),
        ("trainer.evaluate(other, None, 'test')", [VALIDATE, TEST]),
        ("trainer.evaluate(other, metric_key_prefix='test_mismatched')", [VALIDATE, TEST]),
        ("trainer.predict(validation)", [VALIDATE, TEST]),
    ],
)
def test_a_trainer_says_itself_whether_it_validates_or_tests(
    nursery: Nursery, tmp_path: Path, last: str, ending: list[tuple[str, int]]
) -> None:
    """The data alone would say otherwise: what was validated before is validated again, other data is a test's."""
    library = tmp_path / "library"
    (library / "transformers").mkdir(parents=True)
    (library / "transformers" / "__init__.py").touch()
    (library / "transformers" / "trainer.py").write_text(STANDS_IN)
    (library / "program.py").write_text(PROGRAM)
    observed = nursery.run(str(library / "program"), last, directory=tmp_path / "observed", observe=True)
    assert observed.code == 0, observed.output
    assert observed.assembly is not None
    assert seen(observed.assembly.spans).parts == [*EVERY[:-1], *ending]


LOOP = """
import torch


class _EvaluationLoop:
    def __init__(self, trainer):
        self.trainer = trainer

    def run(self):
        with torch.no_grad():
            for x, _ in self.trainer.held:
                self.trainer.model(x)
"""
"""Lightning's loop of evaluations, by its names."""
CHECKED = """
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset
from lightning.pytorch.loops.evaluation_loop import _EvaluationLoop


class Trainer:
    testing = False
    sanity_checking = False


trainer = Trainer()
trainer.model = torch.nn.Linear(6, 3)
trainer.held = DataLoader(TensorDataset(torch.randn(8, 6), torch.arange(8) % 3), batch_size=4)
optimizer = torch.optim.SGD(trainer.model.parameters(), 0.1)
loop = _EvaluationLoop(trainer)
trainer.sanity_checking = bool(eval(sys.argv[1]))
loop.run()
trainer.sanity_checking = False
for _ in range(2):
    for _ in range(4):
        optimizer.zero_grad()
        trainer.model(torch.randn(4, 6)).sum().backward()
        optimizer.step()
    loop.run()
"""


@pytest.mark.parametrize("checks", [True, False])
def test_a_sanity_check_is_warm_up_of_the_validation(nursery: Nursery, tmp_path: Path, checks: bool) -> None:
    """Three walks of two batches: all are validation, and those of a sanity check are not timed. The first step of the
    shape is counted, wherever it is."""
    loops = tmp_path / "library" / "lightning" / "pytorch" / "loops"
    loops.mkdir(parents=True)
    for folder in (loops, loops.parent, loops.parent.parent):
        (folder / "__init__.py").touch()
    (loops / "evaluation_loop.py").write_text(LOOP)
    program = tmp_path / "library" / "program"
    program.with_suffix(".py").write_text(CHECKED)
    observed = nursery.run(str(program), str(checks), directory=tmp_path / "observed", observe=True)
    assert observed.code == 0, observed.output
    assert observed.assembly is not None
    spans = observed.assembly.spans
    assert seen(spans).parts == [VALIDATE, TRAIN, VALIDATE, TRAIN, VALIDATE]
    passes = spans.words("pass").decoded()[spans.where(kind="step")].tolist()
    assert passes[0] == "count"
    assert passes[1] == ("warmup" if checks else "timed")
    assert passes[6:8] == passes[12:14] == ["timed", "timed"]
