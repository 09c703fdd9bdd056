"""The benchmark of verdicts: its truths are sound, and its score counts what it says."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.verdicts import peers
from benchmarks.verdicts import truth as truths
from benchmarks.verdicts.measure import write_share
from benchmarks.verdicts.peers import MEANINGS, PEERS, TORCH, TRACEML, Advice
from benchmarks.verdicts.score import last_document, print_score, read_answer
from benchmarks.verdicts.truth import CONTENTION, GOOD, Place, Truth, read_causes, read_truths
from torch.profiler import _pattern_matcher

SCRIPT = """import torch


class Watch:
    def score(self, rows):
        for row in rows:
            self.add(
                row,
            )

    def add(self, row):
        self.last = row
"""
TRUTH = """cause = "metrics"
what = "every row is looked at"
[place]
file = "watch.py"
function = "Watch.score"
text = "for row in rows:"
[[removal]]
file = "watch.py"
old = "for row in rows:"
new = "for row in rows[:1]:"
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs with one in it; returns its truth."""
    folder = tmp_path / "programs" / "vision"
    folder.mkdir(parents=True)
    (folder / "watch.py").write_text(SCRIPT)
    (folder / "watch.toml").write_text(TRUTH)
    monkeypatch.setattr(truths, "PROGRAMS", tmp_path / "programs")
    return folder / "watch.toml"


def answer(truth: Truth, **verdict: object) -> dict:
    return {"verdicts": [{"kind": "metrics", "sentence": "…", "share": 0.5, "remedies": [], **verdict}]}


def test_the_set_is_as_large_and_as_broad_as_it_should_be() -> None:
    everything = read_truths()
    planted = [truth for truth in everything if truth.cause != GOOD]
    counted = Counter(truth.device for truth in planted)
    assert counted["cpu"] >= 90 and counted["cuda"] >= 18
    assert sum(truth.cause == GOOD and truth.device == "cpu" for truth in everything) >= 10
    assert {truth.cause for truth in everything} >= set(read_causes()) - {"imbalance"}
    assert sum(truth.disguised for truth in planted) >= len(planted) // 5
    assert all(truth.competitors for truth in planted if truth.cause == CONTENTION)


def test_programs_without_their_cause_are_programs_still(tmp_path: Path) -> None:
    for truth in read_truths():
        if truth.removals:
            program = truth.copy_without_cause(tmp_path / truth.name.replace("/", "-"))
            for removal in truth.removals:
                ast.parse((program.parent / removal.file).read_text())


def test_a_place_is_the_line_the_statement_around_it_or_the_function(planted: Path) -> None:
    (truth,) = read_truths()
    assert truth.place is not None and truth.place.lines == frozenset(range(6, 10))
    assert truth.place.holds("a/watch.py", 8, "", "")
    assert truth.place.holds("watch.py", 5, "", ""), "the line beside it"
    assert truth.place.holds("watch.py", 1, "Watch.score", "")
    assert not truth.place.holds("watch.py", 12, "Watch.add", "")
    assert not truth.place.holds("other.py", 6, "Watch.score", "")
    assert not truth.place.holds("", 0, "", "")


def test_a_layer_is_a_place_too() -> None:
    place = Place("net.py", "", frozenset(), "decoder.head")
    assert place.holds("", 0, "", "decoder.head") and place.holds("", 0, "", "net.decoder.head")
    assert not place.holds("", 0, "", "encoder")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('cause = "metrics"', 'cause = "haste"'),
        ("[place]", "[place]\nrow = 3"),
        ('text = "for row in rows:"', 'text = "for line in rows:"'),
        ('old = "for row in rows:"', 'old = "row"'),
        ('what = "every', 'extra = 1\nwhat = "every'),
    ],
)
def test_a_truth_that_is_not_sound_is_refused(planted: Path, text: str, mistake: str) -> None:
    planted.write_text(TRUTH.replace(text, mistake))
    with pytest.raises(ValueError, match=r"watch\.toml"):
        read_truths()


def test_the_cause_is_removed_in_a_copy(planted: Path, tmp_path: Path) -> None:
    (truth,) = read_truths()
    program = truth.copy_without_cause(tmp_path / "copy")
    assert "rows[:1]" in program.read_text() and "rows[:1]" not in truth.program.read_text()


def test_what_was_measured_replaces_what_stood_there(planted: Path) -> None:
    (truth,) = read_truths()
    write_share(truth, (0.5, 0.4, 0.6))
    write_share(truth, (0.25, 0.2, 0.3))
    (measured,) = read_truths()
    assert measured.share == 0.25 and planted.read_text().count("[measured]") == 1
    assert measured.removals == truth.removals


def test_the_first_verdict_counts(planted: Path) -> None:
    (truth,) = read_truths()
    right = read_answer(
        truth, answer(truth, place={"file": "watch.py", "line": 6}, remedies=[{"kind": "vectorise"}])
    )  # fmt: skip
    assert right.named and right.placed and right.helped
    wrong = read_answer(truth, answer(truth, kind="none", remedies=[{"kind": "larger_batch"}]))
    assert not wrong.named and not wrong.placed and not wrong.helped
    nothing = read_answer(truth, {})
    assert not nothing.named and nothing.kind == ""


def test_the_document_is_the_last_thing_that_was_printed() -> None:
    printed = '{"loss": 1}\nepoch 1\n{\n  "verdicts": [\n    {"kind": "input"}\n  ]\n}\n'
    assert last_document(printed)["verdicts"] == [{"kind": "input"}]
    assert last_document("epoch 1\n{") == {}


def test_bars_compare_counts(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (truth,) = read_truths()
    answers = [read_answer(truth, answer(truth, kind=kind)) for kind in ["metrics"] * 9 + ["none"]]
    bars = print_score(answers)
    assert [bar.state for bar in bars] == ["PASS", "FAIL", "FAIL", "FAIL"]
    assert bars[0].figure == "9 of 10, bar 85%"
    assert "vision/watch (metrics): none" in capsys.readouterr().out


def test_a_peer_is_right_where_any_of_its_advice_means_the_cause() -> None:
    assert set(MEANINGS) == set(PEERS)
    assert {cause for meanings in MEANINGS.values() for meant in meanings.values() for cause in meant} <= set(
        read_causes()
    )
    planted = {truth.cause: truth for truth in read_truths("cpu")}
    both = Advice(("FP32 MatMul Pattern", "Synchronized DataLoader Pattern"))
    assert both.is_right(TORCH, planted["input"]) and not both.is_right(TORCH, planted["waiting"])
    assert not both.is_right(TORCH, planted[GOOD]) and Advice(()).is_right(TORCH, planted[GOOD])
    assert Advice(("COMPUTE_BOUND",)).is_right(TRACEML, planted[GOOD])
    failed = Advice((), "fails: no GPU")
    assert not failed.is_right(TRACEML, planted[GOOD]) and not failed.is_right(TRACEML, planted["input"])


def test_a_peer_that_is_missing_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["peers", "--peer", TRACEML, "input"])
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("SONDA_TRACEML", raising=False)
    peers.main()
    assert capsys.readouterr().err.count("\n") == 1


def test_the_patterns_of_torch_have_a_meaning() -> None:
    source = ast.parse(Path(_pattern_matcher.__file__).read_text())
    reported = next(
        node for node in source.body if isinstance(node, ast.FunctionDef) and node.name == "report_all_anti_patterns"
    )
    kinds = {
        node.func.id for node in ast.walk(reported)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("Pattern")
    }  # fmt: skip
    names = {
        statement.value.value
        for node in source.body if isinstance(node, ast.ClassDef) and node.name in kinds
        for statement in ast.walk(node)
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        and isinstance(statement.targets[0], ast.Attribute) and statement.targets[0].attr == "name"
    }  # fmt: skip
    assert names == set(MEANINGS[TORCH])
