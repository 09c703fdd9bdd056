"""Models of somebody's own through whole epochs: as the built-in ones, gone on with to the last bit, refused in one
line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from light_programs import without_ceilings
from sonda.analysis.run_summary import summarise
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.studies.catalogue import carry_out
from sonda.targets.job import Job
from sonda.targets.pipeline import measure
from sonda.workloads.catalogue import describe
from training_cases import OPTIONS, SPLIT, small_set

__all__ = ["without_ceilings"]
pytestmark = pytest.mark.usefixtures("without_ceilings")

SAME = '''
from pathlib import Path
import numpy as np, torch
import sonda

HERE = Path(__file__).parent

class Walk:
    """Batches of eight in the order that the built-in networks have."""

    def __init__(self, prepared, numbers, shuffled):
        self.prepared, self.numbers, self.shuffled, self.epoch = prepared, numbers, shuffled, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return -(-len(self.numbers) // 8)

    def __iter__(self):
        numbers = sonda.data.epoch_order(self.numbers, 0, self.epoch) if self.shuffled else self.numbers
        for images, labels in sonda.data.batches(self.prepared, numbers, 8):
            yield shaped(torch.from_numpy(images).float()), torch.from_numpy(labels)

def data():
    prepared = sonda.data.load(HERE / "set")
    shares = prepared.split({shares}, seed=0)
    parts = ("train", "validate", "test")
    return {{part: Walk(prepared, share, part == "train") for part, share in zip(parts, shares)}}

def begun(model):
    """With the weights that the built-in network begins with, in the order of its layers."""
    with np.load(HERE / "start.npz") as start, torch.no_grad():
        for name, tensor in zip(start.files, model.state_dict().values(), strict=True):
            tensor.copy_(torch.from_numpy(start[name]))
    return model

def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr={rate})
'''
PERCEPTRON = """
def shaped(images):
    return images.flatten(1)

def build():
    nn = torch.nn
    return begun(nn.Sequential(nn.Linear(396, 16), nn.Sigmoid(), nn.Linear(16, 3)))
"""
CONVOLUTIONS = """
def shaped(images):
    return images

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.body = nn.Sequential({layers})

    def forward(self, images):
        return self.body(images)

def build():
    return begun(Net())
"""


def values(run: Run) -> list[np.ndarray]:
    with np.load(run.directory / "weights.npz", allow_pickle=False) as held:
        return [held[name] for name in held.files]


def walks(run: Run) -> list[tuple[str, int, float, float | None, int]]:
    """Part, epoch, loss, accuracy, samples of every walk, in order."""
    spans = run.spans
    rows = np.flatnonzero(spans.where(kind="epoch"))
    rows = rows[~np.isnan(spans.metric("samples", "counted")[rows])]
    names, numbers = spans.words("name").decoded(), spans.number("call")
    loss, accuracy, samples = (
        spans.metric(*metric) for metric in (("loss", "measured"), ("accuracy", "measured"), ("samples", "counted"))
    )
    found = [
        (
            str(names[row]),
            int(numbers[row]),
            float(loss[row]),
            None if np.isnan(accuracy[row]) else float(accuracy[row]),
            int(samples[row]),
        )
        for row in rows
    ]
    return sorted(found, key=lambda one: (one[1], ("train", "validate", "test").index(one[0])))


def job_of(file: Path, **more: Any) -> Job:
    return Job(**{"workload": f"{file}:build", "train": True, "epochs": 3, "on": "cpu/1", **more})


def train(file: Path, store: Path, **more: Any) -> Run:
    return measure(job_of(file, **more), Store(store))


# ---- The same as built-in --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_a_built_in_network_in_a_file_has_the_same_weights_losses_and_accuracies(
    network: str, deterministic: bool, tmp_path: Path
) -> None:
    place = small_set(tmp_path / "set")
    if network == "mlp":
        options = {"batch": "8", "layers": "396-16-3", "loss": "cross_entropy", "learning-rate": "0.3"}
        own, rate = PERCEPTRON, 0.3
    else:
        options = OPTIONS
        rate = float(OPTIONS["learning-rate"])
        own = ""
    shape = {} if network == "mlp" else {"image": "22x18", "channels": "1", "classes": "3"}
    model: Any = describe(network, {**options, **shape}).build("torch", True, 0)
    model = model.model
    np.savez(tmp_path / "start.npz", **{name: value.numpy() for name, value in model.state_dict().items()})
    if network == "cnn":
        own = CONVOLUTIONS.format(layers=", ".join(layer_words(model)))
    file = tmp_path / "mine.py"
    shares = tuple(map(float, SPLIT.split("/")))
    file.write_text(SAME.format(shares=shares, rate=rate) + own)
    built_in = measure(
        Job(workload=network, options=options, train=True, epochs=3, on="cpu/1", data=str(place), split=SPLIT,
            deterministic=deterministic),
        Store(tmp_path / "built-in"),
    )  # fmt: skip
    mine = train(file, tmp_path / "mine", deterministic=deterministic)
    assert walks(mine) == walks(built_in)
    assert [name for name, *_ in walks(mine)] == ["train", "validate"] * 3 + ["test"]
    for left, right in zip(values(mine), values(built_in), strict=True):
        np.testing.assert_array_equal(left, right)


def layer_words(model: Any) -> list[str]:
    """The layers of a model, which are called one after the other, as a file writes them."""
    return [f"nn.{layer}" for layer in model.modules() if not list(layer.children())]


# ---- Going on --------------------------------------------------------------------------------------------------------

KILLED = '''
import os, random, signal
from pathlib import Path
import numpy as np, torch
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).parent

class Noisy(Dataset):
    """Draws from every generator that a data set may draw from."""

    def __init__(self, begin, end):
        draws = torch.Generator().manual_seed(begin)
        self.x = torch.randn(end - begin, 8, generator=draws)
        self.y = (self.x[:, 0] > 0).long() + (self.x[:, 1] > 0).long()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, at):
        noise = 0.1 * torch.randn(8) + 0.1 * random.random() + 0.1 * np.random.rand()
        return self.x[at] + noise.float(), self.y[at]

class Killing(DataLoader):
    def set_epoch(self, epoch):
        if epoch == {epoch} and (HERE / "kill").exists() and os.environ.get("RANK", "0") == "{rank}":
            (HERE / "kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)

def build():
    nn = torch.nn
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))

def data(workers: int = 0):
    own = torch.Generator().manual_seed(11) if {generator} else None
    return {{
        "train": Killing(Noisy(0, 61), 8, shuffle=True, drop_last=True, generator=own, num_workers=workers),
        "validate": DataLoader(Noisy(100, 120), 10),
        "test": DataLoader(Noisy(200, 220), 10),
    }}

def optimizer(model):
    return torch.optim.{optimizer}
'''
ADAM = "AdamW(model.parameters(), lr=0.02, amsgrad=True)"
MOMENTUM = (
    "SGD([{'params': model[0].parameters()}, {'params': model[4].parameters(), 'lr': 0.2}], lr=0.1, momentum=0.9)"
)


@pytest.mark.parametrize(
    ("epoch", "generator", "optimizer", "workers"),
    [(1, False, ADAM, "0"), (2, True, MOMENTUM, "0"), (3, True, ADAM, "2")],
)
def test_killed_in_the_middle_it_goes_on_to_the_same_bits(
    epoch: int, generator: bool, optimizer: str, workers: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(KILLED.format(epoch=epoch, rank=0, generator=generator, optimizer=optimizer))
    settings: dict[str, Any] = {"epochs": 4, "options": {"workers": workers}}
    whole = train(file, tmp_path / "whole", **settings)
    (tmp_path / "kill").touch()
    with pytest.raises(SondaError, match="was ended by SIGKILL"):
        train(file, tmp_path / "killed", **settings)
    said: list[str] = []
    gone_on = measure(job_of(file, **settings), Store(tmp_path / "killed"), None, said.append)
    assert any(text.startswith(f"going on after epoch {epoch} of 4") for text in said)
    assert walks(gone_on) == walks(whole) and len(walks(whole)) == 9
    for left, right in zip(values(gone_on), values(whole), strict=True):
        np.testing.assert_array_equal(left, right)
    again = train(file, tmp_path / "again", seed=1, **settings)
    assert any((left != right).any() for left, right in zip(values(again), values(whole), strict=True))


def test_ranks_of_which_one_is_killed_go_on_to_the_same_bits(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(KILLED.format(epoch=2, rank=1, generator=True, optimizer=ADAM))
    whole = train(file, tmp_path / "whole", on="ddp=cpu/1+cpu/1")
    (tmp_path / "kill").touch()
    killed = train(file, tmp_path / "killed", on="ddp=cpu/1+cpu/1")
    assert any("ranks were started again once" in note for note in killed.info.notes)
    assert walks(killed) == walks(whole)
    for left, right in zip(values(killed), values(whole), strict=True):
        np.testing.assert_array_equal(left, right)


# ---- Several devices -------------------------------------------------------------------------------------------------

PLAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset

def build(width: int = 16):
    torch.set_default_dtype(torch.float64)
    nn = torch.nn
    return nn.Sequential(nn.Linear(8, width), nn.BatchNorm1d(width), nn.Tanh(), nn.Linear(width, 3))

def parts():
    draws = torch.Generator().manual_seed(3)
    x = torch.randn(130, 8, generator=draws, dtype=torch.float64)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    return [TensorDataset(x[a:b], y[a:b]) for a, b in ((0, 90), (90, 107), (107, 130))]

def data(batch: int = 16):
    train, validate, test = parts()
    return {
        "train": DataLoader(train, batch, shuffle=True),  # the last batch has 10
        "validate": DataLoader(validate, 6),
        "test": DataLoader(test, 5),
    }

def optimizer(model, lr: float = 0.1):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
"""


@pytest.fixture(scope="module")
def alone(without_ceilings: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    place = tmp_path_factory.mktemp("plain")
    file = place / "plain.py"
    file.write_text(PLAIN)
    return file, train(file, place / "store")


@pytest.mark.parametrize(
    "on", ["ddp=cpu/1+cpu/1", "hybrid=cpu/1+cpu/1@shares=12:4", "hybrid=cpu/1+cpu/1@shares=12:4,evaluate=first"]
)
def test_several_devices_give_what_one_gives(on: str, alone: tuple[Path, Run], tmp_path: Path) -> None:
    file, single = alone
    shared = train(file, tmp_path, on=on)
    for (part, epoch, loss, accuracy, samples), other in zip(walks(shared), walks(single), strict=True):
        assert (part, epoch, samples) == (other[0], other[1], other[4])
        assert loss == pytest.approx(other[2], rel=1e-12)
        assert accuracy == (None if part == "train" else pytest.approx(other[3], abs=1e-12))
    for left, right in zip(values(shared), values(single), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-12)


def test_options_reach_the_function_that_names_them(alone: tuple[Path, Run], tmp_path: Path) -> None:
    file, _ = alone
    run = train(file, tmp_path, epochs=1, options={"batch": "30", "width": "5", "lr": "0.0"})
    assert values(run)[0].shape == (5, 8)
    # Batches of 30 of 90, of 6 of 17, of 5 of 23.
    assert run.spans.where(kind="step", pass_="timed").sum() == 3 + 3 + 5
    with pytest.raises(SondaError, match=r"takes no option 'bacth'; did you mean 'batch'"):
        train(file, tmp_path, options={"bacth": "30"})


@pytest.mark.parametrize(
    ("on", "words"),
    [
        ("pipeline=cpu/1+cpu/1", "a pipeline does not walk through the loaders of a file; use ddp="),
        ("ddp=cpu/1+cpu/1@batch=each", "the loaders of a file give one batch, which ranks share; leave out batch=each"),
    ],
)
def test_ways_that_cannot_share_loaders_are_refused(
    on: str, words: str, alone: tuple[Path, Run], tmp_path: Path
) -> None:
    with pytest.raises(SondaError, match=words):
        train(alone[0], tmp_path, on=on)


# ---- What is measured of built-in ones -------------------------------------------------------------------------------


def test_a_study_trains_it_and_knows_the_time_to_an_accuracy(alone: tuple[Path, Run], tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        '[study]\nname = "own"\nquestion = "?"\nprotocol = "plain"\n'
        'metrics = ["training_s", "accuracy_percent", "best_accuracy_percent", "time_to_accuracy_s@20"]\n'
        f'[workload]\nname = "{alone[0]}:build"\ntrain = true\nepochs = 3\n[axes]\non = ["cpu/1", "ddp=cpu/1+cpu/1"]\n'
    )
    document = carry_out(str(study), "", None, False, Store(tmp_path / "store"), lambda text: None)
    assert document["measured"] == 2
    expected = walks(alone[1])[-1][3]
    assert expected is not None and expected > 0.2
    for row in document["rows"]:
        figures = {key: value for key, value in row.items() if "accuracy" in key or "training" in key}
        assert all(value is not None for value in figures.values()), figures


def test_a_run_says_what_it_was_trained_on(alone: tuple[Path, Run]) -> None:
    summary = summarise(alone[1])
    assert summary.training is not None and len(summary.training.epochs) == 3
    assert [sample for *_, sample in walks(alone[1])[-3:]] == [90, 17, 23]


OTHER_METRIC = """
import torch

def build():
    return torch.nn.Linear(4, 1)

def data():
    x = torch.arange(80.0).reshape(20, 4) / 80
    batches = [(x[at : at + 5], x[at : at + 5].sum(1, keepdim=True)) for at in range(0, 20, 5)]
    return {"train": batches, "validate": batches}
"""


def test_without_right_answers_there_is_no_accuracy_and_a_list_is_a_loader(tmp_path: Path) -> None:
    file = tmp_path / "regression.py"
    file.write_text(OTHER_METRIC)
    found = walks(train(file, tmp_path / "store"))
    assert [part for part, *_ in found] == ["train", "validate"] * 3
    assert all(accuracy is None for _, _, _, accuracy, _ in found)
    assert found[-1][2] < found[0][2], "mean squared error falls"


def test_the_files_own_accuracy_and_loss_count(tmp_path: Path) -> None:
    file = tmp_path / "regression.py"
    file.write_text(
        OTHER_METRIC
        + "def accuracy(output, target):\n    return ((output - target).abs() < 1e9).double().mean() / 4\n"
        + "def loss(output, target):\n    return (output - target).abs().mean() + 7\n"
    )
    found = walks(train(file, tmp_path / "store"))
    assert [accuracy for part, _, _, accuracy, _ in found if part == "validate"] == [0.25] * 3
    assert all(loss > 7 for _, _, loss, _, _ in found)


# ---- Bad files -------------------------------------------------------------------------------------------------------

GOOD = """
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
SET = TensorDataset(torch.randn(20, 4), torch.zeros(20, dtype=torch.int64))
def build():
    return torch.nn.Linear(4, 2)
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"bad.py has no data\(\) to train on by epochs; define data\(\)"),
        ("data = 3", r"bad.py has no data\(\) to train on"),
        ("def data(): return DataLoader(SET, 5)", r"data\(\) returns a DataLoader; return \{"),
        ("def data(): return {}", r"data\(\) has nothing to train on"),
        ("def data(): return {'train': DataLoader(SET, 5), 'val': DataLoader(SET, 5)}", "has a part 'val'"),
        ("def data(): return {'train': SET}", "a TensorDataset, not a loader; wrap it in a torch"),
        ("def data(): return {'train': 7}", "a int, not a loader"),
        ("def data(): return {'train': iter(DataLoader(SET, 5))}", "which can be walked through once"),
        ("def data(): return {'train': (batch for batch in DataLoader(SET, 5))}", "which can be walked through once"),
        ("def data(): return {'train': []}", "without a batch"),
        ("class S(IterableDataset):\n    def __iter__(self): yield from SET\n"
         "def data(): return {'train': DataLoader(S(), 5)}",
         "a DataLoader without a length"),
        ("def data(): return {'train': torch.randn(5, 4)}", "gives a Tensor, not inputs and target"),
        ("def data(): return {'train': [{'x': 1}]}", "gives a dict, not inputs and target"),
        ("def data(): return {'train': [(1, 2, 3)]}", "gives a tuple of 3, not inputs and target"),
        ("def data(): return {'train': [(1, 2)]}", "inputs without a sample"),
        ("def data(): return {'train': [(torch.randn(5, 3), torch.zeros(5).long())]}", "forward fails with input 5x3"),
        ("def data(): raise KeyError('x')", r"data\(\) raises KeyError: 'x' \(line 7 of bad.py\); mend data\(\)"),
        ("def data(path): pass", r"data\(\) needs path; set path=..."),
        ("class Once:\n    left = [1] * 5\n    def __len__(self): return 4\n    def __iter__(self):\n"
         "        while self.left:\n            self.left.pop()\n            yield SET[:5]\n"
         "def data(): return {'train': Once()}",
         r"train has 4 batches by its length, and gave 0 in epoch 2; let data\(\) return a loader"),
        ("class More:\n    def __len__(self): return 2\n    def __iter__(self): return iter(DataLoader(SET, 5))\n"
         "def data(): return {'train': More()}", "gives more batches than its length, 2"),
        ("def data(): return {'train': DataLoader(SET, 5)}\n"
         "def optimizer(model): return torch.optim.SGD(torch.nn.Linear(4, 2).parameters(), lr=1.0)",
         r"optimizer\(\) steps 2 tensors that are not the model's; make it from model.parameters\(\)"),
        ("def data(): return {'train': DataLoader(SET, 5)}\ndef optimizer(model): return 'adam'",
         r"optimizer\(\) returns a str; return a torch.optim.Optimizer"),
        ("def data(): return {'train': DataLoader(SET, 5)}\noptimizer = 0.1", "optimizer is a float, not a function"),
        ("def data(): return {'train': DataLoader(SET, 5)}\ndef loss(output, target): return output",
         r"loss\(\) returns a tensor of 5x2; return one number"),
        ("def data(): return {'train': DataLoader(SET, 5)}\ndef loss(output, target): return 1.5",
         r"loss\(\) returns a float"),
        ("def data(): return {'train': DataLoader(SET, 5)}\ndef loss(output, target): return torch.zeros(())",
         "does not depend on a parameter"),
        ("def data(): return {'train': DataLoader(SET, 5)}\ndef loss(output, target): return output @ target",
         "the loss of output 5x2 and target 5:int64 raises RuntimeError"),
        ("def data(): return {'train': DataLoader(SET, 5), 'validate': DataLoader(SET, 5)}\n"
         "def accuracy(output, target): return torch.tensor(50.0)", "the accuracy of validate is 50; let it be"),
    ],
)  # fmt: skip
def test_bad_files_are_one_line(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(GOOD + text)
    with pytest.raises(SondaError, match=words) as refused:
        train(file, tmp_path / "store")
    assert "\n" not in str(refused.value)


def test_a_loss_of_the_file_and_one_of_the_command_contradict(tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(GOOD + "def data(): return {'train': DataLoader(SET, 5)}\nloss = torch.nn.CrossEntropyLoss()\n")
    train(file, tmp_path / "store", epochs=1)
    with pytest.raises(SondaError, match=r"bad.py has a loss, and --loss mse is another; give one of them"):
        train(file, tmp_path / "store", epochs=1, options={"loss": "mse"})


def test_settings_of_images_are_said_to_mean_nothing(tmp_path: Path) -> None:
    file = tmp_path / "good.py"
    file.write_text(GOOD + "def data(): return {'train': DataLoader(SET, 5)}\n")
    run = train(file, tmp_path / "store", epochs=1, data="drawn", workers=2, split="0.8/0.1/0.1", transfer="up-front")
    for name in ("data", "workers", "split", "transfer"):
        assert f"--{name}: data() of a file says that itself" in run.info.notes
