"""A run explained: small enough to be read whole, and the same as the full document says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from answers import ANSWERS, carry_out, differences, names
from sonda.analysis.findings import Remark
from sonda.analysis.summary import CausePlace, Remedy, Summary, Value, Verdict
from sonda.report.blocks import Block
from sonda.report.json import encode
from sonda.report.screen import render
from sonda.report.views.explain import explain_blocks, explain_document

KB4 = 4096
SOUND = [name for name in names() if not name.startswith("damaged-")]


@pytest.mark.parametrize("name", SOUND)
def test_an_explanation_is_below_4_kb_and_agrees_with_the_full_document(name: str) -> None:
    written = carry_out(["explain", name, "--json"], 100)
    assert len(written.encode()) < KB4
    explanation = json.loads(written)
    full = json.loads((ANSWERS / name / "document.json").read_text(encoding="utf-8"))
    assert explanation["run"] == full["run"]
    if "verdicts" in full:
        assert differences(full["verdicts"], explanation["verdicts"]) == []
        assert all(warning in full["warnings"] for warning in explanation["warnings"])
    else:
        assert [verdict["sentence"] for verdict in explanation["verdicts"]] == [full["sentence"]]


@pytest.mark.parametrize("name", SOUND)
def test_the_text_says_what_the_document_says(name: str) -> None:
    words = "".join(carry_out(["explain", name], 100).split())
    for verdict in json.loads(carry_out(["explain", name, "--json"], 100))["verdicts"]:
        for text in (verdict["sentence"], *(remedy["text"] for remedy in verdict["remedies"])):
            assert "".join(text.split()) in words


@pytest.mark.parametrize(
    ("kind", "label"),
    [("contention", "threads wait for a core 72 %"), ("oversubscription", "threads wait for a core 72 %"),
     ("input", "part of the step 72 %")],
)  # fmt: skip
def test_a_share_is_called_what_it_is_a_share_of(kind: str, label: str) -> None:
    verdict = Verdict(kind, Remark("Found."), {"share": Value(0.72, "1", "derived")}, ())
    assert label in render(explain_blocks(summary_of(verdict)), 100, False)


def summary_of(*verdicts: Verdict, warnings: int = 0) -> Summary:
    doubts = tuple(Remark(f"doubt number {number}, which is said at some length") for number in range(warnings))
    return Summary("0123456789ab", "train.py", "2 cores", "complete", (), verdicts, doubts, {}, ())


def found(sentence: str = "Input-bound.", remedies: int = 1) -> Verdict:
    advice = tuple(Remedy(Remark(f"remedy number {number}")) for number in range(remedies))
    place = CausePlace("train.py", 41, "load", "json.loads(line)")
    return Verdict("input", Remark(sentence), {"share": Value(0.5, "1", "derived")}, advice, 0.5, place)


def text_of(blocks: list[Block]) -> str:
    return render(blocks, 100, color=False)


def test_a_cause_is_named_with_its_line() -> None:
    assert "Where: train.py:41 · load · json.loads(line)" in text_of(explain_blocks(summary_of(found())))
    place = explain_document(summary_of(found()))["verdicts"][0]["place"]
    assert (place["file"], place["line"]) == ("train.py", 41)


def test_what_has_no_room_is_counted_and_the_first_verdict_stays() -> None:
    summary = summary_of(*(found(f"Verdict {number}.") for number in range(40)), warnings=30)
    explanation = explain_document(summary)
    assert len(encode(explanation)) + 1 < KB4
    assert explanation["verdicts"][0]["sentence"] == "Verdict 0."
    assert explanation["left_out"]["warnings"] == 30 - len(explanation["warnings"]) > 0
    assert explanation["left_out"]["verdicts"] == 40 - len(explanation["verdicts"]) > 0


def test_a_single_verdict_with_endless_texts_is_cut_too() -> None:
    verdict = found("s" * 10_000, remedies=200)
    summary = replace(summary_of(verdict), title="t" * 10_000, subtitle="u" * 10_000)
    explanation = explain_document(summary)
    assert len(encode(explanation)) + 1 < KB4
    assert explanation["left_out"]["remedies"] == 200
    assert explanation["verdicts"][0]["sentence"].startswith("sss")


def test_what_fits_is_left_as_it_is() -> None:
    assert "left_out" not in explain_document(summary_of(found()))
