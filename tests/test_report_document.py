"""Documents: plain JSON in which every number has a unit and a source."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import report_examples as examples
from sonda.analysis.summary import Value
from sonda.record.quantity import SOURCES
from sonda.report.document import (
    checks_document,
    comparison_document,
    plain_data,
    runs_in_pieces,
    summaries_document,
    to_document,
    value_document,
)

DOCUMENTS = {
    "training": to_document(examples.training()),
    "incomplete": to_document(examples.inference()),
    "hostile": to_document(examples.hostile()),
    "several": summaries_document([examples.training(), examples.inference()]),
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
    document = to_document(replace(examples.training(), parts=(part,)))
    assert document["parts"][0]["noise"] is None


def test_ceilings_of_any_shape_become_plain_data() -> None:
    shape = {"peak": Value(5e10, "FLOP/s", "measured"), "n": np.float64(2.5), "k": np.int64(3), "t": (1, None, True)}
    assert plain_data(shape) == {
        "peak": {"value": 5e10, "unit": "FLOP/s", "source": "measured"}, "n": 2.5, "k": 3, "t": [1, None, True],
    }  # fmt: skip
