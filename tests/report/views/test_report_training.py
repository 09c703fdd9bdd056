"""A whole training and its ranks on the screen, on the page and as JSON."""

from __future__ import annotations

import json
import math

import numpy as np

from charts import across, series_of, upright
from sonda.analysis.run_summary import summarise
from sonda.record.run import Run
from sonda.record.training import Trained, Walk, read_trained, write_trained
from sonda.report.blocks import Detail
from sonda.report.page import page_text
from sonda.report.screen import render
from sonda.report.views.compare.screen import side_by_side_blocks
from sonda.report.views.steps.training import chosen, curve
from sonda.report.views.steps.view import StepsView
from sonda.studies.figures.training import trained_value
from training_examples import trained


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_screen_shows_every_epoch() -> None:
    summary = summarise(trained([50, 48], [5, 5], 12, [0.4, 0.7], 0.75))
    text = StepsView(summary).text(110, detail=Detail.ALL)
    assert "2 epochs: training 98.0 s, validation 10.0 s, test 12.0 s; 75.0 % of the test right" in text
    assert ["1", "50.0", "5.00", "55", "2.00", "1.00", "40.0"] in lines(text)
    assert ["2", "48.0", "5.00", "108", "1.00", "1.00", "70.0"] in lines(text)
    assert "before that, in none of these times: loading 3.00 s, initialisation 2.00 s" in text


def test_of_many_epochs_a_screen_shows_the_ends_and_the_best() -> None:
    rights = [0.1 + 0.01 * number for number in range(40)]
    rights[17] = 0.9
    summary = summarise(trained([1.0] * 40, [0.5] * 40, 3, rights, 0.5))
    assert summary.training is not None
    assert [one.number for one in chosen(summary.training)] == [1, 2, 3, 4, 5, 18, 36, 37, 38, 39, 40]
    assert "11 of 40 epochs; the others: --json, or the page" in StepsView(summary).text(110, detail=Detail.ALL)
    document = StepsView(summary).document()["training"]
    assert len(document["epochs"]) == 40
    right = document["epochs"][17]["accuracy"]
    assert (right["value"], right["unit"], right["source"]) == (0.9, "1", "measured")
    assert "low" not in right and "samples" in right["reason"], "nobody kept how many there were"
    assert document["test"] == {"value": 3e9, "unit": "ns", "source": "measured"}
    json.dumps(document, allow_nan=False)


def test_a_training_without_validation_says_what_it_has() -> None:
    summary = summarise(trained([50, 48]))
    text = StepsView(summary).text(110, detail=Detail.ALL)
    assert "2 epochs: training 98.0 s\n" in text
    assert ["1", "50.0", "50.0", "2.00"] in lines(text)
    document = StepsView(summary).document()["training"]
    assert document["epochs"][0]["accuracy"]["value"] is None and document["epochs"][0]["accuracy"]["reason"]


def test_the_page_draws_losses_and_right_answers() -> None:
    summary = summarise(trained([50, 48], [5, 5], 12, [0.4, 0.7], 0.75))
    assert summary.training is not None
    figure = curve(summary.training)
    drawn = {line.name: (across(line), upright(line)) for line in series_of(figure)}
    assert drawn == {
        "training loss": ([1, 2], [2.0, 1.0]),
        "validation loss": ([1, 2], [1.0, 1.0]),
        "right in validation": ([1, 2], [40.0, 70.0]),
    }
    page = page_text([summary])
    assert 'id="run0epochs"' in page and "<h3>Epochs</h3>" in page


def test_ranks_have_a_table_of_their_own() -> None:
    ranks = [
        {"rank": 0, "device": "cuda:0", "threads": 0, "samples": 24, "worked_ns": 240e6, "waited_ns": 81e6},
        {"rank": 1, "device": "cpu", "threads": 8, "samples": 8, "worked_ns": 320e6, "waited_ns": 1e6},
        {"rank": 2, "device": "cpu", "threads": 8, "left_out": True},
    ]
    summary = summarise(trained([50], target={"mode": "hybrid", "ranks": ranks}))
    text = StepsView(summary).text(110, detail=Detail.ALL)
    assert ["rank", "device", "samples", "work", "ms", "wait", "ms"] in lines(text)
    assert ["0", "cuda:0", "24", "240", "81.0"] in lines(text)
    assert ["2", "cpu", "–", "–", "–"] in lines(text)
    assert "left out, because it would not pay" in text
    assert StepsView(summary).document()["ranks"][1] == {
        "rank": 1, "device": "cpu", "threads": 8, "samples": {"value": 8, "unit": "1", "source": "counted"},
        "worked": {"value": 320e6, "unit": "ns", "source": "measured"},
        "waited": {"value": 1e6, "unit": "ns", "source": "measured"},
    }  # fmt: skip
    assert "<h3>Ranks</h3>" in page_text([summary])


def test_trainings_stand_side_by_side() -> None:
    runs = [trained([50, 48], [5, 5], 12, [0.4, 0.7], 0.75), trained([30, 28], [5, 5], 12, [0.3, 0.6], 0.7)]
    text = render(side_by_side_blocks([summarise(run) for run in runs], ["cpu", "ddp=cpu+cpu"]), 110)
    assert ["training", "98.0", "s", "58.0", "s"] in lines(text)
    assert ["right", "in", "the", "test", "75.0", "%", "70.0", "%"] in lines(text)


def diverged() -> Run:
    """Three epochs, the loss of the second and third no number; the third was validated without one either."""
    run = trained([50, 48, 47], [5, 5, 5], 12, [0.4, 0.1, 0.1], 0.1)
    names, kinds = (run.spans.words(name).decoded() for name in ("name", "kind"))
    call = run.spans.number("call")
    loss = run.spans.metric("loss", "measured")
    epoch = kinds == "epoch"
    run.spans.metrics["samples:counted"] = np.where(epoch, 640.0, np.nan)
    loss[epoch & (names == "train") & (call > 0)] = np.nan
    loss[epoch & (names == "validate") & (call > 1)] = np.nan
    return run


def test_a_loss_that_is_no_number_is_not_called_missing() -> None:
    summary = summarise(diverged())
    text = StepsView(summary).text(110, detail=Detail.ALL)
    assert next(line for line in lines(text) if line[:1] == ["2"])[:7] == [
        "2",
        "48.0",
        "5.00",
        "108",
        "–",
        "1.00",
        "10.0",
    ]
    assert "– training loss, validation loss: the loss was no finite number" in text
    assert "nothing was validated" not in text
    document = StepsView(summary).document()["training"]
    assert document["epochs"][1]["train_loss"]["value"] is None
    assert document["epochs"][1]["train_loss"]["reason"] == "not a finite number"
    assert document["epochs"][0]["train_loss"]["value"] == 2.0
    json.dumps(document, allow_nan=False)
    value = trained_value(summary, "training_loss")
    assert (value.value, value.reason) == (None, "the loss was no finite number")
    assert "NaN" not in page_text([summary]).split("<script type=")[0]


def test_a_training_without_validation_has_none_beside_others() -> None:
    runs = [trained([50, 48]), trained([30, 28], [5, 5], 12, [0.3, 0.6], 0.7)]
    text = render(side_by_side_blocks([summarise(run) for run in runs], ["cpu", "ddp=cpu+cpu"]), 110)
    assert ["validation", "–", "10.0", "s"] in lines(text) and ["test", "–", "12.0", "s"] in lines(text)
    assert "– cpu: nothing was validated" in text and "– cpu: nothing was tested" in text
    assert "0 ns" not in text


def test_what_a_training_left_may_hold_a_loss_that_is_no_number(tmp_path) -> None:
    walks = [
        Walk(part="train", epoch=at, begin=0, end=1, samples=8, loss=loss) for at, loss in enumerate((0.5, math.nan))
    ]
    write_trained(tmp_path, Trained(walks=walks))
    found = read_trained(tmp_path)
    assert found is not None and [walk.loss for walk in found.walks] == [0.5, None]
