"""Every document that `--json` writes is as its JSON Schema says, and what is not is found out."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from answers import ANSWERS, carry_out, names
from builders import RunBuilder, stepped
from command_line import run_command
from optimisations_cases import CHANGES, summaries
from places import DATA, REPOSITORY
from sonda.analysis.comparison.optimisations import weigh_options
from sonda.analysis.run_summary import summarise
from sonda.analysis.summary import Value
from sonda.analysis.trials import TrialsSummary, TriedRemedy
from sonda.probes.validation.trust import ProbeTrial, Validation
from sonda.record.errors import SondaError
from sonda.record.quantities import SOURCES
from sonda.record.run import Run, write_run
from sonda.record.store import Store
from sonda.record.trials import SourcePatch, UntriedRemedy
from sonda.report.json import document
from sonda.report.schemas import document_kinds, schema_of
from sonda.report.views.steps.view import StepsView
from sonda.report.words import word_findings
from sonda.studies.results.optimisations import optimisations_document
from stack_examples import a_frame, make_stacks

Document = dict[str, Any]

KEPT = sorted(path.parent.name for path in ANSWERS.glob("*/document.json") if path.read_text()[:1] == "{")


def kept(name: str) -> Document:
    read: Document = json.loads((ANSWERS / name / "document.json").read_text(encoding="utf-8"))
    return read


def closed(schema: Any) -> Any:
    """The schema without room for keys that it does not describe."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {key: closed(part) for key, part in schema.items()}
    return {"additionalProperties": False, **parts} if "properties" in parts and "type" in parts else parts


@cache
def checker(kind: str) -> Any:
    """A validator of a kind of document that knows every key."""
    validation = pytest.importorskip("jsonschema", reason="jsonschema, which reads schemas, is not installed")
    return validation.Draft202012Validator(closed(schema_of(kind)))


def mistakes(found: Document, kind: str = "") -> list[str]:
    errors = checker(kind or found["kind"]).iter_errors(found)
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in errors]


# ---- The schemas ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", document_kinds())
def test_a_schema_is_one_and_needs_no_other_file(kind: str) -> None:
    checker(kind).check_schema(schema_of(kind))
    schema = json.dumps(schema_of(kind))
    names = set(re.findall(r'"\$ref": "#/\$defs/(\w+)"', schema))
    assert schema.count('"$ref"') == len(re.findall(r'"\$ref": "#/\$defs/\w+"', schema))
    assert names == set(schema_of(kind).get("$defs", ())), "what is referred to is there, and nothing else"


def test_every_kind_of_the_documentation_has_a_schema() -> None:
    """`test_report_document.py` holds that the documentation names what is written."""
    rows = (REPOSITORY / "docs/json.md").read_text(encoding="utf-8").partition("## Documents")[2]
    assert set(re.findall(r"^\| `([^`]+)` \|", rows, re.MULTILINE)) == set(document_kinds())


def test_sources_are_those_of_the_record() -> None:
    assert schema_of("summary")["$defs"]["source"]["enum"] == list(SOURCES)


def test_a_kind_that_is_none_is_told_the_nearest() -> None:
    with pytest.raises(SondaError, match="did you mean 'comparison'"):
        schema_of("comparson")
    assert schema_of("kernel-comparison") == schema_of("kernel comparison")


# ---- What is written ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KEPT)
def test_kept_documents_of_every_kind_of_run_are_as_described(name: str) -> None:
    assert mistakes(kept(name)) == []


@pytest.mark.parametrize("name", [name for name in KEPT if name in names()])
def test_explanations_of_every_kind_of_run_are_as_described(name: str) -> None:
    assert mistakes(json.loads(carry_out(["explain", name, "--json"], 100))) == []


def listed(directory: Path) -> Store:
    store = Store(directory / "store")
    for tag, number, durations in (("main", 1, [100.0, 101.0, 102.0]), ("head", 2, [101.0, 102.0, 103.0])):
        made = stepped(durations * 4, id=f"{number}" * 12)
        write_run(store.root, made.info, made.spans)
        store.tag(made.id, tag)
    return store


COMMANDS = {
    "summary": ("show", "main"),
    "explanation": ("explain", "main"),
    "runs": ("ls",),
    "tag": ("tag", "main", "base"),
    "comparison": ("compare", "main", "head", "--fail-above", "50%"),
    "page": ("report", "main", "-o", "page.html"),
    "export": ("export", "main", "--trace", "trace.json", "--tensorboard", "logs"),
    "studies": ("study",),
    "plan": ("study", "six-operations", "--scale", "small", "--plan"),
    "study": ("study", "dlrm-accelerator", "--scale", "small", "--show"),
    "scalesim verification": ("verify", "scalesim"),
    "drawn data set": ("data", "make", "fish", "fish", "--count", "2", "--image", "24x18"),
    "data set": ("data", "prepare", "fish", "--out", "prepared"),
    "schemas": ("schema",),
    "removed": ("rm", "head"),
}


def test_documents_of_commands_are_as_described(tmp_path: Path) -> None:
    listed(tmp_path)
    for kind, words in COMMANDS.items():
        done = run_command(tmp_path, *words, "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["kind"] == kind
        assert mistakes(found) == [], kind


def test_what_failed_is_as_described_too(tmp_path: Path) -> None:
    runs = [run for run in json.loads((DATA / "stonne" / "golden.json").read_text()) if run["mode"] == "TPU"][:2]
    runs[0]["cycles"] += 1
    (tmp_path / "changed.json").write_text(json.dumps(runs))
    differing = json.loads(run_command(tmp_path, "verify", "stonne", "changed.json", "--json").stdout)
    assert differing["differences"] and mistakes(differing) == []
    trials = (
        ProbeTrial("os", "page faults", "trusted", "64", "64", 0.0),
        ProbeTrial("pmu", "instructions", "missing", reason="no PMU", remedy="run on hardware"),
    )
    assert mistakes(document("validation", Validation(trials).to_document())) == []


@pytest.mark.slow
def test_what_this_machine_can_measure_is_as_described(tmp_path: Path) -> None:
    found = json.loads(run_command(tmp_path, "doctor", "--json").stdout)
    assert found["checks"] and mistakes(found) == []


def test_several_runs_hold_documents_that_are_as_described() -> None:
    several = document("summaries", {"summaries": [kept("cnn-train"), kept("sim-tpu")]})
    assert mistakes(several) == [] and [mistakes(one) for one in several["summaries"]] == [[], []]


# ---- What is not as described ---------------------------------------------------------------------------------------

ONE_OF_EACH = {kept(name)["kind"]: name for name in KEPT}


@pytest.mark.parametrize("name", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_a_document_without_one_of_its_keys_is_found_out(name: str) -> None:
    whole = kept(name)
    for key in schema_of(whole["kind"])["required"]:
        assert mistakes({other: value for other, value in whole.items() if other != key}, whole["kind"]), key
    assert mistakes({**whole, "unheard": 1})
    assert mistakes({**whole, "schema": 2}) and mistakes({**whole, "warnings": "none", "damaged": "none"})


def numbers(part: Any) -> Iterator[Document]:
    """Every number of a document that has a source."""
    if isinstance(part, dict):
        if "source" in part and "value" in part:
            yield part
        for below in part.values():
            yield from numbers(below)
    elif isinstance(part, list):
        for below in part:
            yield from numbers(below)


@pytest.mark.parametrize(
    "change",
    [
        lambda number: number.update(value="1"), lambda number: number.pop("unit"), lambda number: number.pop("value"),
        lambda number: number.update(source="guessed"), lambda number: number.update(high=[2]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["mlp-train", "compare-trainings", "serving-found", "study-meshes", "corun-two"])
def test_a_number_that_is_none_is_found_out_wherever_it_stands(name: str, change: Callable[[Document], Any]) -> None:
    whole = kept(name)
    for at in range(0, sum(1 for _ in numbers(whole)), 40):
        changed = copy.deepcopy(whole)
        change(list(numbers(changed))[at])
        assert mistakes(changed), at


# ---- What few runs have ---------------------------------------------------------------------------------------------


def sampled() -> Run:
    """Steps of 100 ms with a sample in a line of the user's every 10 ms, which `watch` calls a library in."""
    frames = [
        a_frame(-1, "main", 40, "train(model)"),
        a_frame(0, "watch", 31, "json.dumps(rows)"),
        a_frame(1, "dumps", 200, origin="library", module="json"),
    ]
    builder = RunBuilder()
    part = builder.part("train")
    for _ in range(20):
        builder.step(part, 100, {"forward": 40})
    counted = {"counts": {"page_faults": {"value": 1000.0}}}
    readings = {"probe": "fans", "sensor": "left", "unit": "1/min", "readings": 3, "mean": 900.0, "least": 800.0}
    target = {"spec": "", "threads": 1, "second": {"sonda": counted, "perf-stat": counted}, "probed": [readings]}
    run = builder.run(target=target)
    samples: list[dict[str, float | str]] = [
        {"time": 10 * place + 5, "stack": 2 if place % 3 else 1, "lasted": 10, "worker": -1} for place in range(200)
    ]
    run.__dict__["stacks"] = make_stacks(frames, samples)
    return run


def test_code_second_sources_probes_and_tries_are_as_described() -> None:
    patch = SourcePatch(text="-a", folder="code", file="workers.patch", change="2 workers", place="train.py:20")
    speedup = Value(1.5, "1", "measured", 1.2, 1.9)
    remedies = (TriedRemedy("workers", 2, speedup, "within tolerance", 0.0, patch),
                TriedRemedy("fused", None, Value(None, "1", "measured", reason="no gain"), "", None, None))  # fmt: skip
    trials = TrialsSummary(remedies, (UntriedRemedy(name="compile", reason="no time"),), "", 3, 2, 20, 61.5, "/tmp/run")
    found = StepsView(replace(summarise(sampled()), trials=trials)).document()
    assert {"tried", "second_sources", "probed"} <= set(found) and found["parts"][0]["code"]["functions"]
    assert mistakes(found) == []


def test_options_of_a_study_are_as_described() -> None:
    runs = {
        name: summaries(middle) for name, middle in (("base", 12.0), ("prefetch", 8.0), ("mixed", 12.1), ("both", 7.0))
    }
    options = word_findings(optimisations_document([weigh_options("", "base", runs, CHANGES, {"both": "no GPU"})]))
    assert mistakes({**kept("study-widths"), "optimisations": options}) == []
