"""Every kind of run shows itself whole: on a screen, as a document, in a notebook, by one way for all."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sonda
from builders import stepped, trained
from command_line import run_command
from interference_cases import experiment, pieces
from places import REPOSITORY
from serving_run_cases import evenly, synthetic
from sonda.api import Explored, Profile
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.report.blocks import Gap, Items, Paragraph, TableBlock
from sonda.report.notebook import MOST_ROWS, render_fragment
from sonda.report.table import Cell, Column, build

EXAMPLES = REPOSITORY / "examples"


def corun(store: Path) -> Run:
    return experiment(store, lambda members, turn, slot: pieces(1.0 + (len(members) > 1 and slot == 1)), repeat=3)


def serving(store: Path) -> Run:
    return synthetic(store, evenly(np.full(100, 2_000_000)), scenario="single-stream")


def imported(store: Path) -> Run:
    return sonda.import_trace(EXAMPLES / "10_import_a_trace" / "trace.json.gz", store=store).run


def exploration(store: Path) -> Run:
    return sonda.explore("mlp", {"multipliers": [64, 128]}, on="sim:maeri-256", store=store).run


def energy(store: Path) -> Run:
    words = ("energy", "--idle", "0", "--model", "cpu=20..95", "--", "true")
    done = run_command(store.parent, *words, home=store)
    assert done.returncode == 0, done.stderr
    return Store(store).one("last")


KINDS: dict[str, tuple[Callable[[Path], Run], list[str]]] = {
    "corun": (corun, ["slowed", "fairness", "alone"]),
    "serving": (serving, ["queries", "percentile", "up to"]),
    "imported": (imported, ["kernel", "device", "stream"]),
    "exploration": (exploration, ["multipliers", "stands out"]),
    "energy": (energy, ["device", "EDP"]),
}
"""How a run of each kind is made, and heads of the tables that it has."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_shows_in_python_what_it_shows_on_a_screen(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, heads = KINDS[kind]
    run = make(tmp_path / "store")
    assert run.info.kind == kind
    profile = sonda.load(run.id, store=tmp_path / "store")
    assert isinstance(profile, Explored) == (kind == "exploration")
    screen = run_command(tmp_path, "show", run.id).stdout
    assert repr(profile).splitlines()[:-1] == screen.splitlines()[:-1]  # the last line has the short id
    for detail, option in ((0, ()), (1, ("-v",)), (2, ("-vv",))):
        typed = run_command(tmp_path, "show", run.id, *option).stdout.splitlines()[:-1]
        capsys.readouterr()
        profile.show(detail)
        assert capsys.readouterr().out.splitlines()[:-1] == typed
        assert all(head in "\n".join(typed) for head in heads) or not detail
    html = profile._repr_html_()
    assert "<script" not in html
    assert all(one in screen for one in re.findall(r"<div class='first'>([^<&\n]{1,60})", html))
    assert profile.to_document() and "parts" not in profile.to_document()


def test_steps_have_the_view_that_they_had() -> None:
    for run in (stepped([10.0, 20.0]), trained()):
        assert run.info.kind == "workload"
        assert "a step" in repr(Profile(run)) and "parts" in Profile(run).to_document()


def test_a_trace_of_any_size_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported(tmp_path / "store")
    read: list[Run] = []
    from sonda.report.views import kinds

    usual = kinds.summarise_trace
    monkeypatch.setattr(kinds, "summarise_trace", lambda run: (read.append(run), usual(run))[1])
    monkeypatch.setattr(kinds, "summarise", lambda run: pytest.fail("a trace is summarised a second time"))
    assert run_command(tmp_path, "show").returncode == 0 and len(read) == 1


def test_a_notebook_escapes_words_and_keeps_to_the_first_rows() -> None:
    rows = [Cell(f"<{number}>", number) for number in range(MOST_ROWS + 5)]
    html = render_fragment([
        Paragraph("<b>bold</b>", "first"), Gap(), Items(["<i>", "j"], "Try: ", "   ·   "),
        TableBlock(build([(Column("<n>"), rows)], "numbers")),
    ])  # fmt: skip
    assert "&lt;b&gt;bold&lt;/b&gt;" in html and "Try: &lt;i&gt;   ·   j" in html and "&lt;n&gt;" in html
    assert html.count("<tr") == 1 + MOST_ROWS and "and 5 more" in html and "&lt;100&gt;" not in html


def test_what_kind_a_run_is_is_guessed_in_one_place() -> None:
    """Everybody else asks the run: the type of its target is its kind."""
    package = Path(sonda.__file__).parent
    guess = re.compile(r"def (is_(?:exploration|corun|serving|imported|energy)|guess_kind)\(")
    guesses = [path.name for path in package.rglob("*.py") if guess.search(path.read_text())]
    assert guesses == ["upgrade.py"]
