"""`sonda.profile()`: a block of the running program."""

from __future__ import annotations

from pathlib import Path

import pytest

import sonda
from observed import check_structure, seen
from sonda.record.errors import SondaError
from sonda.record.store import Store
from sonda.record.target import NO_STEP_OF_BLOCK
from sonda.report.words import in_words
from sonda.targets import circumstances

torch = pytest.importorskip("torch")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(circumstances, "load_or_measure", lambda root, threads, machine: {})
    return Store(tmp_path / "store")


def train(steps: int) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(3, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_block_is_seen_and_computes_what_it_would_have(store: Store) -> None:
    bare = train(5)
    with sonda.profile("mine", store=store) as profile:
        assert train(5) == bare
    assert profile.info.status == "complete" and profile.info.workload.name == "mine"
    check_structure(profile.spans)
    found = seen(profile.spans)
    assert found.parts == [("train", 5)] and found.counted == 1
    assert found.forward == {"": 5, "0": 5, "1": 5, "2": 5}
    assert found.backward == {"0": 5, "1": 5, "2": 5}


def test_a_block_that_fails_is_kept_as_incomplete(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        with sonda.profile(store=store) as profile:
            train(2)
            raise ZeroDivisionError
    assert profile.info.status == "incomplete"
    assert seen(profile.spans).parts == [("train", 2)]


def test_a_block_inside_an_exception_handler_is_complete(store: Store) -> None:
    try:
        raise KeyError("earlier")
    except KeyError:
        with sonda.profile(store=store) as profile:
            train(1)
    assert profile.info.status == "complete"


def test_blocks_follow_each_other_and_do_not_nest(store: Store) -> None:
    with sonda.profile(store=store) as first:
        train(2)
        with pytest.raises(SondaError, match="blocks cannot be nested"):
            with sonda.profile(store=store):
                pass
    with sonda.profile(store=store) as second:
        train(3)
    assert seen(first.spans).parts == [("train", 2)]
    assert seen(second.spans).parts == [("train", 3)]


def test_an_optimizer_made_before_the_block_is_seen(store: Store) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sonda.profile(store=store) as profile:
        for _ in range(4):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert seen(profile.spans).parts == [("train", 4)]


def test_peak_memory_holds_weights_input_and_output(tmp_path: Path) -> None:
    model, given = torch.nn.Linear(1000, 1), torch.randn(10, 1000)
    with torch.no_grad(), sonda.profile(store=Store(tmp_path)) as run:
        for _ in range(3):
            model(given)
    spans = run.spans
    counted = spans.where(kind="phase", name="forward", pass_="count")
    # float32: 1000 weights and a bias, 10 x 1000 inputs, 10 outputs
    assert spans.metric("peak_memory", "counted")[counted].tolist() == [4 * (1001 + 10_000 + 10)]


def test_a_block_without_a_step_says_so_at_once(store: Store) -> None:
    with pytest.warns(UserWarning, match=r"saw no step: .* sonda run -- python PROGRAM") as warned:
        with sonda.profile(store=store) as profile:
            torch.ones(3).sum()
    assert Path(warned[0].filename) == Path(__file__)
    assert in_words(profile.summary.warnings)[0] == NO_STEP_OF_BLOCK


def test_a_block_with_steps_warns_of_nothing(store: Store, recwarn: pytest.WarningsRecorder) -> None:
    with sonda.profile(store=store):
        train(2)
    assert [str(warning.message) for warning in recwarn if "sonda" in str(warning.message)] == []
