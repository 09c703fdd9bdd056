"""Documents: plain JSON in which every number has a unit and a source."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import report_examples as examples
from builders import stepped
from command_line import run_command
from places import REPOSITORY, TESTS
from simulated_examples import CLOCKED, nested_run
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import MODEL, READINGS, Value
from sonda.record.quantities import SOURCES
from sonda.record.run import write_run
from sonda.record.store import Store
from sonda.report.json import document, encode
from sonda.report.values import plain_data, value_document
from sonda.report.views.compare.document import comparison_document
from sonda.report.views.kinds import view_of
from sonda.report.views.listing import checks_document, runs_in_pieces
from sonda.report.views.steps.view import StepsView

RUNS = TESTS / "corpus" / "runs"
DOCUMENTS = {
    "training": StepsView(examples.training()).document(),
    "incomplete": StepsView(examples.inference()).document(),
    "hostile": StepsView(examples.hostile()).document(),
    "several": document(
        "summaries",
        {"summaries": [StepsView(summary).document() for summary in (examples.training(), examples.inference())]},
    ),
    "comparison": comparison_document(examples.comparison()),
    "runs": json.loads(b"".join(runs_in_pieces(examples.run_rows(), lambda: ["x is damaged"]))),
    "checks": checks_document(examples.CHECKS),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_survives_the_round_trip(name: str) -> None:
    document = DOCUMENTS[name]
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["schema"] == 1


def numbers_in(value: Any) -> list[dict[str, Any]]:
    """Every object that holds a value, wherever it is."""
    if isinstance(value, dict):
        inner = [found for item in value.values() for found in numbers_in(item)]
        return [value, *inner] if "value" in value else inner
    return [found for item in value for found in numbers_in(item)] if isinstance(value, list) else []


@pytest.mark.parametrize("name", ["training", "incomplete", "comparison", "runs"])
def test_every_number_has_unit_and_source_and_a_missing_one_its_reason(name: str) -> None:
    numbers = numbers_in(DOCUMENTS[name])
    assert numbers
    for number in numbers:
        assert number["unit"] and number["source"] in SOURCES
        assert number["value"] is not None or number["reason"]


def test_metrics_stand_under_quantity_and_source() -> None:
    forward = DOCUMENTS["training"]["parts"][0]["phases"][1]
    assert forward["metrics"]["flops:nominal"] == {"value": 14.1e9, "unit": "FLOP", "source": "nominal"}
    assert forward["metrics"]["page_faults:counted"] == {"value": 1000, "unit": "1", "source": "counted"}
    assert forward["metrics"]["time:measured"]["value"] == 402e6
    assert forward["bound"] == "compute"
    data = DOCUMENTS["training"]["parts"][0]["phases"][0]
    assert data["metrics"]["flops:nominal"]["value"] is None
    assert data["bound"] is None


def test_verdicts_keep_evidence_and_remedies() -> None:
    verdict = DOCUMENTS["training"]["verdicts"][0]
    assert verdict["evidence"]["share"] == {"value": 0.71, "unit": "1", "source": "derived"}
    assert verdict["remedies"][0]["options"] == ["--channels-last"]
    assert verdict["remedies"][0]["speedup"]["low"] == 1.10
    assert verdict["remedies"][1]["speedup"] is None


def test_numbers_that_json_cannot_say_are_missing_with_a_reason() -> None:
    assert value_document(Value(math.nan, "ns", "measured")) == {
        "value": None, "unit": "ns", "source": "measured", "reason": "not a finite number",
    }  # fmt: skip
    part = replace(examples.training_part(), noise=math.nan)
    document = StepsView(replace(examples.training(), parts=(part,))).document()
    assert document["parts"][0]["noise"] is None


def test_ceilings_of_any_shape_become_plain_data() -> None:
    shape = {"peak": Value(5e10, "FLOP/s", "measured"), "n": np.float64(2.5), "k": np.int64(3), "t": (1, None, True)}
    assert plain_data(shape) == {
        "peak": {"value": 5e10, "unit": "FLOP/s", "source": "measured"}, "n": 2.5, "k": 3, "t": [1, None, True],
    }  # fmt: skip


def test_a_value_says_what_its_ends_are() -> None:
    ends = {"value": 2.0, "unit": "J", "source": "estimated", "low": 1.0, "high": 3.0}
    assert value_document(Value(2.0, "J", "estimated", 1.0, 3.0)) == ends  # a 95 % interval
    assert value_document(Value(2.0, "J", "estimated", 1.0, 3.0, few=3)) == {**ends, "few": 3}
    assert value_document(Value(2.0, "J", "estimated", 1.0, 3.0, bounds=MODEL)) == {**ends, "bounds": MODEL}
    assert value_document(Value(2.0, "J", "estimated", 1.0, math.inf))["high"] is None


@pytest.mark.parametrize("start", ["534b", "352b", "726d", "1332", "a7a8"])
def test_what_a_real_gpu_left_is_plain_json_with_units_sources_and_reasons(start: str) -> None:
    document = view_of(Store(RUNS).one(start)).document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    for number in numbers_in(document):
        assert number["unit"] and number["source"] in SOURCES
        assert number["value"] is not None or number["reason"]


def test_kernels_that_were_counted_hide_none_that_were_timed() -> None:
    summary = summarise(Store(RUNS).one("726d"))
    assert summary.device_work is not None and summary.kernel_counters is not None
    device = StepsView(summary).document()["device"]
    timed, counted = device["kernels"], device["counted"]["kernels"]
    assert [one["total_ns"] for one in timed] == [one.total for one in summary.device_work.kernels]
    assert [one["flops"]["value"] for one in counted] == [one.flops.value for one in summary.kernel_counters.kernels]
    assert device["counted"]["stalls"]


def test_energies_say_which_bounds_they_have() -> None:
    devices = view_of(Store(RUNS).one("352b")).document()["devices"]
    (card,) = (one for one in devices if one["device"] == "cuda:0")
    assert card["energy"]["low"] <= card["energy"]["value"] <= card["energy"]["high"]
    assert card["energy"]["bounds"] == READINGS


def test_times_of_a_simulated_step_are_simulated_and_without_a_clock_missing(tmp_path: Path) -> None:
    part = StepsView(summarise(nested_run(CLOCKED, tmp_path))).document()["parts"][0]
    assert part["step_durations"]["source"] == part["phase_durations"]["source"] == "simulated"
    assert part["step_durations"]["values"] == [part["metrics"]["step_time:simulated"]["value"]]
    part = StepsView(summarise(nested_run(replace(CLOCKED, clock_hz=None), tmp_path))).document()["parts"][0]
    for durations in (part["step_durations"], part["phase_durations"]):
        assert not durations["values"] and "gives no clock" in durations["reason"]
    assert StepsView(examples.training()).document()["parts"][0]["step_durations"]["source"] == "measured"


def test_the_documentation_names_every_kind_of_document() -> None:
    source = REPOSITORY / "src" / "sonda"
    places = ("report/*.py", "report/views/**/*.py", "cli/*.py")
    texts = [path.read_text(encoding="utf-8") for place in places for path in source.glob(place)]
    ways = (r'^    kind = "([^"]+)"', r'\bdocument\("([^"]+)"', r'write_json\(.*, "([^"]+)"\)')
    written = {kind for way in ways for kind in re.findall(way, "\n".join(texts), re.MULTILINE)}
    page = (source.parents[1] / "docs" / "json.md").read_text(encoding="utf-8").partition("## Documents")[2]
    assert set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)) == written


def test_a_file_name_that_is_no_text_is_kept_as_python_keeps_it() -> None:
    document = {"page": b"a\xff.html".decode("utf-8", "surrogateescape"), "noise": math.nan}
    assert json.loads(encode(document)) == {**document, "noise": None}


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("ls",), "runs"),
        (("show",), "summary"),
        (("compare", "7f3a", "b2b2"), "comparison"),
        (("tag", "last", "base"), "tag"),
        (("report", "-o", "page.html"), "page"),
        (("export", "--trace", "trace.json"), "export"),
        (("rm", "last"), "removed"),
        (("study",), "studies"),
        (("study", "six-operations", "--plan", "--scale", "small"), "plan"),
        (("study", "six-operations", "--show", "--scale", "small"), "study"),
        (("data", "make", "fish", "fish", "--count", "1", "--image", "60x44"), "drawn data set"),
        (("verify", "scalesim"), "scalesim verification"),
    ],
)
def test_a_command_writes_one_document_on_one_line_and_says_its_kind(
    words: tuple[str, ...], kind: str, tmp_path: Path
) -> None:
    for run in (stepped([100.0] * 8), stepped([100.0] * 8, id="b2b2b2b2")):
        write_run(tmp_path / "store", run.info, run.spans)
    done = run_command(tmp_path, *words, "--json")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert (document["schema"], document["kind"]) == (1, kind)
    wrong = run_command(tmp_path, *words, "--json", "--no-such-option")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
