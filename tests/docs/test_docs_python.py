"""Python that pages show is run: with a small model and a few drawn images where the page says `model` and `fish`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sonda
from builders import stepped
from command_line import run_command
from docs_commands import Block, blocks
from docs_desk import ceilings
from sonda.api import Explored, Profile
from sonda.targets.job import make_job

SHOWN_WHOLE = "docs/extending.md"
"""Files of a package that test_extending.py installs and uses; it also holds that the page shows them as they are."""


def shown(page: str, words: str) -> Block:
    (found,) = (one for one in blocks() if one.language == "python" and one.page == page and words in one.text)
    return found


def run(block: Block, names: dict[str, Any]) -> dict[str, Any]:
    """Run a block as a reader would, after what went before it; failures name the page's own line."""
    source = "\n" * block.line + block.text
    exec(compile(source, block.page, "exec"), names)
    return names


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own to be in, with a store of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SONDA_HOME", str(tmp_path / "store"))
    ceilings(tmp_path / "store")
    return tmp_path


@pytest.fixture
def learner() -> dict[str, Any]:
    """What a reader has before the page begins: a model, data, an optimizer, a loss, a function that trains."""
    import torch

    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = [(torch.ones(3, 4), torch.zeros(3, dtype=torch.long))] * 3
    loss_of = torch.nn.CrossEntropyLoss()

    def train(model: torch.nn.Module) -> None:
        for pictures, labels in loader:
            optimizer.zero_grad()
            loss_of(model(pictures), labels).backward()
            optimizer.step()

    return {
        "sonda": sonda,
        "model": model,
        "optimizer": optimizer,
        "loader": loader,
        "loss_of": loss_of,
        "train": train,
    }


@pytest.mark.parametrize(
    ("page", "words"), [("README.md", "train(model)"), ("docs/howto/notebook.md", "loss_of(model")]
)
def test_a_block_is_observed(page: str, words: str, place: Path, learner: dict[str, Any]) -> None:
    profile = run(shown(page, words), learner)["run"]
    assert profile.spans.where(kind="step").sum() == 3 and profile.id == sonda.load("last").id


def test_a_region_is_announced(place: Path, learner: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SONDA_REGIONS", str(place / "regions"))
    (place / "regions").touch()
    run(shown("docs/energy.md", "sonda.region"), learner)
    assert [line.split()[-1] for line in (place / "regions").read_text().splitlines()] == ["training", "training"]


def test_runs_of_the_command_line_are_compared_in_a_notebook(place: Path) -> None:
    block = shown("docs/howto/notebook.md", "sonda.compare")
    asked: list[Any] = []

    def instead(workload: str, **settings: Any) -> Profile:
        """A run that is twice as slow, in place of a network that takes minutes; the settings are read as its would."""
        asked.append(make_job({"workload": workload, "on": "cpu", **settings}))
        return Profile(stepped([20.0] * 10))

    seen = SimpleNamespace(load=lambda name: Profile(stepped([10.0] * 10, id="a1")), run=instead, compare=sonda.compare)
    *lines, last = block.text.strip().splitlines()
    names = run(Block(block.page, block.line, "python", tuple(lines)), {"sonda": seen})
    assert eval(last, names) == "2.00x slower"
    assert asked[0].workload == "resnet18" and asked[0].train and asked[0].channels_last


def test_an_exploration_gives_points_and_a_page(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = run(shown("docs/accelerators.md", "sonda.explore"), {})
    assert isinstance(names["found"], Explored) and names["table"].num_rows == 3 * 2  # three sizes, two mappings
    assert (place / "front.html").exists() and "multipliers" in capsys.readouterr().out


def test_images_are_prepared_divided_and_walked_through(place: Path) -> None:
    done = run_command(place, "data", "make", "fish", "fish", "--count", "8", "--image", "60x45")
    assert done.returncode == 0, done.stderr
    names = run(shown("docs/data.md", "epoch_order"), {})
    assert names["data"].images.shape[0] == 8 * 9 == sum(len(names[part]) for part in ("train", "validation", "test"))
    run(shown("docs/data.md", "PreparedImages"), names)
    assert names["batch"].shape[0] == len(names["train"])  # fewer than the 128 of a batch
    assert len(names["loader"]) == 1


def test_an_own_model_is_trained_on_its_own_data(place: Path) -> None:
    (place / "mine.py").write_text(shown("docs/training.md", "def optimizer").text)
    words = ("mine.py:build", "--train", "--epochs", "2", "--width", "8", "--batch", "200", "--lr", "0.01")
    done = run_command(place, "run", *words, "--on", "cpu/1")
    assert done.returncode == 0, done.stderr
    spans = sonda.load("last").spans
    assert [spans.where(kind="epoch", name=part).sum() for part in ("train", "validate", "test")] == [2, 2, 1]


def test_tests_that_ask_for_a_profile_name_fixtures_of_the_plugin() -> None:
    """What the fixtures do is tested in test_pytest_plugin.py."""
    from inspect import signature

    from sonda.integrations import pytest_plugin

    model, trained = object(), []
    names = run(
        shown("docs/howto/workplaces.md", "sonda_profile"),
        {"model": model, "train": lambda model, steps: trained.append((model, steps))},
    )
    tests = [function for name, function in names.items() if name.startswith("test_")]
    asked = [name for function in tests for name in signature(function).parameters]
    assert sorted(asked) == sorted(pytest_plugin.ASKING)
    for function in tests:
        function(None)
    assert trained == [(model, 20)] * 2


def test_every_block_is_run_somewhere() -> None:
    """A page that shows new Python needs a test here."""
    own = Path(__file__).read_text(encoding="utf-8")
    pages = {block.page for block in blocks() if block.language == "python"} - {SHOWN_WHOLE}
    assert [page for page in sorted(pages) if f'"{page}"' not in own] == []
