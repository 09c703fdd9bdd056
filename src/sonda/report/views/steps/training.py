"""A whole training: what every epoch took and reached; terminal, page, JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sonda.analysis import reasons, wording
from sonda.analysis.energy.training import Spent
from sonda.analysis.steps.training import Epoch, Training
from sonda.analysis.summary import Summary, Value
from sonda.report import quantities
from sonda.report.blocks import Block, FigureBlock, Gap, Panel, Paragraph, TableBlock, paragraphs
from sonda.report.charts.chart import Axis, Chart, Place, Plot, Points, Strip
from sonda.report.palette import BLUE, GREEN, SKY
from sonda.report.table import Cell, Column, Table, build, numbers, percents, quantity
from sonda.report.values import Document, number_document, value_document

FEW = 12
"""Epochs that a screen lists: all of so many, else the first, the best and the last."""
ENDS = 5
FEW_MARKS = 60
"""Up to so many epochs are marked."""
HEIGHT = 300
ACCURACY, TRAINING, VALIDATION = GREEN, SKY, BLUE
INTERVAL = "of the share that were told right: what so many samples leave open (Wilson)"
NO_LOSS, NO_TRAINING = "no loss was kept", "no training through whole epochs"
NOT_KEPT = "not done, or not kept"


def training_blocks(found: Training) -> list[Block]:
    """The sentence, and the table of epochs."""
    blocks: list[Block] = [Gap(), Paragraph(sentence(found), "first"), Gap()]
    shown = chosen(found)
    blocks.append(TableBlock(epochs_table(shown)))
    if len(shown) < len(found.epochs):
        blocks.append(
            Paragraph(f"{len(shown)} of {len(found.epochs):,} epochs; the others: --json, or the page", "quiet", hang=0)
        )
    for words in (energy_words(found), before_words(found)):
        if words:
            blocks.append(Paragraph(words, "quiet"))
    return blocks


def sentence(found: Training) -> str:
    """`10 epochs: training 34.1 s, validation 1.22 s, test 0.9 s; 81.2 % of the test right`."""
    count = len(found.epochs)
    times = [f"training {quantities.amount(found.train, 'ns')}"]
    if found.validate:
        times.append(f"validation {quantities.amount(found.validate, 'ns')}")
    if found.test is not None:
        times.append(f"test {quantities.amount(found.test, 'ns')}")
    words = f"{count:,} epoch{'' if count == 1 else 's'}: {', '.join(times)}"
    return words if found.accuracy is None else f"{words}; {right_words(found.right, found.tested)} right"


def short_sentence(found: Training) -> str:
    """`10 epochs in 35.3 s; 81.2 % of the test right`."""
    count = len(found.epochs)
    time = quantities.amount(found.train + (found.validate or 0.0), "ns")
    words = f"{wording.plural(count, 'epoch')} in {time}"
    return words if found.accuracy is None else f"{words}; {right_words(found.right, found.tested)} right"


def right_words(right: Value, samples: int | None) -> str:
    """`81.2 % (79.1 to 83.1 %) of the test's 1,500`; without their number, `81.2 % of the test`."""
    interval = wording.interval(right.low, right.high)
    return f"{quantities.percent(right.value, 1)} %{interval} of the test" + (f"'s {samples:,}" if samples else "")


def before_words(found: Training) -> str:
    """What is in these times and in no step; what went before, and on between, and is in none of the figures; '' where
    nothing of that is known."""
    pieces = [
        f"{name} {quantities.amount(value, 'ns')}"
        for name, value in (("loading", found.loading), ("initialisation", found.initialisation))
        if value is not None
    ]
    said = []
    if found.between_steps is not None:
        said.append(f"between steps, in these times: {quantities.amount(found.between_steps, 'ns')}")
    if pieces:
        said.append(f"before that, in none of these times: {', '.join(pieces)}")
    spent = found.energy
    if spent is not None and spent.between_time and spent.between.value is not None:
        time, joules = quantities.amount(spent.between_time, "ns"), quantities.amount(spent.between.value, "J")
        took = f"{time} and {joules} ({_origin(spent.between)})"
        said.append(f"checkpoints and what else lay between took {took}, which are in none of these")
    return "; ".join(said)


def energy_words(found: Training) -> str:
    """What these walks cost, with and without devices that stood idle; '' where no energy was read."""
    spent = found.energy
    if spent is None:
        return ""
    if spent.used.value is None:
        return f"energy of these walks: not known, {spent.used.reason}"
    said = [f"energy of these walks: {_joules(spent.used, spent.product)}: {wording.join(list(spent.covers))}"]
    if spent.all != spent.used:
        said.append(f"with devices that stood idle: {_joules(spent.all, spent.product_with_idle)}")
    return "; ".join(said)


def chosen(found: Training) -> list[Epoch]:
    """The epochs that a screen lists."""
    epochs = found.epochs
    if len(epochs) <= FEW:
        return list(epochs)
    best = max(epochs, key=lambda one: (one.accuracy or 0.0, -one.number))
    return sorted({*epochs[:ENDS], best, *epochs[-ENDS:]}, key=lambda one: one.number)


def epochs_table(epochs: Sequence[Epoch]) -> Table:
    """A row for each epoch."""
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("epoch"), [Cell(f"{one.number:,}", one.number) for one in epochs])
    ]
    train = numbers([Value(one.train, "ns", "measured") for one in epochs])
    columns.append((Column(f"training {train[0]}"), train[1]))
    if any(one.validate is not None for one in epochs):
        validate = numbers([_value(one.validate, "ns") for one in epochs])
        columns.append((Column(f"validation {validate[0]}"), validate[1]))
    passed = numbers([Value(one.passed, "ns", "derived") for one in epochs])
    columns.append((Column(f"so far {passed[0]}", keep=6), passed[1]))
    columns.append((Column("training loss", keep=8), [_loss(one.train_loss, NO_LOSS) for one in epochs]))
    if any(one.validate is not None for one in epochs):
        columns.append(
            (Column("validation loss", keep=7), [_loss(one.validate_loss, reasons.NOTHING_VALIDATED) for one in epochs])
        )
        columns.append((Column("right %"), [_right(one.right) for one in epochs]))
        if any(one.right.low is not None for one in epochs):
            columns.append((Column("95 % interval", keep=5, hint=INTERVAL), [_ends(one.right) for one in epochs]))
    return build(columns, "epochs")


def trainings_table(summaries: Sequence[Summary], names: Sequence[str]) -> Table | None:
    """Trainings side by side, a column each; None where there is none."""
    trainings = [summary.training for summary in summaries]
    if not any(trainings):
        return None
    heads = [Column("whole training", right=False), *(Column(name) for name in names)]
    body = [(Cell(row[0], row[0], tone="name"), *(_written(one, *row[1:]) for one in trainings)) for row in ROWS]
    return Table(tuple(heads), tuple(body), "trainings")


def training_panel(found: Training) -> Panel:
    """The sentence, the curve and all epochs, for a page."""
    lines = [words for words in (energy_words(found), before_words(found)) if words]
    picture = FigureBlock(curve(found), "epochs", epochs_table(found.epochs))
    return Panel("Epochs", [Paragraph(sentence(found), "first"), *paragraphs(lines, "soft"), picture], opened=True)


def curve(found: Training) -> Chart:
    """Losses over epochs, and below them what the validation got right."""
    epochs = found.epochs
    numbers_of = [one.number for one in epochs]

    def line(name: str, values: Sequence[float | None], color: str, symbol: str) -> Points:
        points: tuple[Place | None, ...] = tuple(
            None if value is None or not math.isfinite(value) else (number, value)
            for number, value in zip(numbers_of, values, strict=True)
        )
        return Points(name, color, points, "solid", symbols=(symbol,) if len(points) < FEW_MARKS else (), sizes=(7,))

    losses = [line("training loss", [one.train_loss for one in epochs], TRAINING, "circle")]
    fields = []
    if any(one.accuracy is not None for one in epochs):
        losses.append(line("validation loss", [one.validate_loss for one in epochs], VALIDATION, "square"))
        shares = [None if one.accuracy is None else 100 * one.accuracy for one in epochs]
        right = (line("right in validation", shares, ACCURACY, "diamond"),)
        fields = [Plot(Axis("right in validation, %", ends=(0, 100)), right)]
    strips = [Strip(one.number - 0.5, one.number + 0.5, _epoch_words(one)) for one in epochs]
    ends = (min(numbers_of, default=1) - 0.5, max(numbers_of, default=1) + 0.5)
    return Chart(
        Axis("epoch", ends=ends, whole=True), (Plot(Axis("loss"), tuple(losses)), *fields), HEIGHT, tuple(strips)
    )


def _epoch_words(epoch: Epoch) -> str:
    lines = [f"epoch {epoch.number}"]
    for name, value in (("training loss", epoch.train_loss), ("validation loss", epoch.validate_loss)):
        lines += [] if value is None else [f"{name} {quantities.number(value)}, measured"]
    right = epoch.accuracy
    return "\n".join([*lines, *([] if right is None else [f"{quantities.percent(right, 1)} % right, measured"])])


def training_fields(found: Training | None) -> Document:
    """For `--json`: every number with unit and source."""
    if found is None:
        return {}
    return {
        "training": {
            "train": _number(found.train, "ns", "derived"),
            "validate": _number(found.validate, "ns", "derived"),
            "test": _number(found.test, "ns", "measured"),
            "whole": _number(found.whole, "ns", "derived"),
            "test_accuracy": _right_fields(found.right),
            "test_loss": _number(found.loss, "1", "measured"),
            "between_steps": _number(found.between_steps, "ns", "derived"),
            "loading": _number(found.loading, "ns", "measured"),
            "initialisation": _number(found.initialisation, "ns", "measured"),
            "devices": found.devices,
            "energy": _energy_fields(found.energy),
            "epochs": [
                {
                    "epoch": one.number,
                    "train": _number(one.train, "ns", "measured"),
                    "validate": _number(one.validate, "ns", "measured"),
                    "passed": _number(one.passed, "ns", "derived"),
                    "train_loss": _number(one.train_loss, "1", "measured"),
                    "validate_loss": _number(one.validate_loss, "1", "measured"),
                    "accuracy": _right_fields(one.right),
                }
                for one in found.epochs
            ],
        }
    }


def _energy_fields(spent: Spent | None) -> Document | None:
    """Of the walks; `between` is what lies between them and is in no other."""
    if spent is None:
        return None
    return {
        "time": _number(spent.time, "ns", "derived"),
        "devices_in_use": value_document(spent.used),
        "all_devices": value_document(spent.all),
        "energy_delay_product": value_document(spent.product),
        "energy_delay_product_with_idle": value_document(spent.product_with_idle),
        "devices": {name: value_document(value) for name, value in spent.devices.items()},
        "covers": list(spent.covers),
        "between": {"time": _number(spent.between_time, "ns", "derived"), "energy": value_document(spent.between)},
    }


def _joules(energy: Value, product: Value) -> str:
    if energy.value is None:
        return f"not known, {energy.reason}"
    joules, edp = quantities.amount(energy.value, "J"), quantities.amount(product.value, "J·s")
    return f"{joules} ({_origin(energy)}), EDP {edp}"


def _origin(energy: Value) -> str:
    """`measured`; of what was not, its bounds too."""
    if energy.source == "measured" or not energy.value or energy.low is None or energy.high is None:
        return energy.source
    scale = quantities.own_scale(energy.value, "J")
    low, high = (quantities.number(end / scale.factor) for end in (energy.low, energy.high))
    return f"{energy.source}, {low}–{high} {scale.unit}"


def _right_fields(right: Value) -> Document:
    return value_document(right if right.value is not None else replace(right, reason=NOT_KEPT))


def _number(value: float | None, unit: str, source: str) -> Document:
    return number_document(value, unit, source, NOT_KEPT)


def _value(value: float | None, unit: str) -> Value:
    return Value(value, unit, "measured", reason="" if value is not None else reasons.NOTHING_VALIDATED)


def _loss(value: float | None, reason: str) -> Cell:
    if value is None or not math.isfinite(value):
        return Cell(quantities.MISSING, None, missing=reason if value is None else reasons.LOSS_DIVERGED, tone="quiet")
    return Cell(quantities.number(value), value, "mean over the samples, measured", unit="1")


def _right(share: Value) -> Cell:
    return percents([share], sign=False, decimals=1)[0]


def _ends(share: Value) -> Cell:
    """`58.4 to 82.0`; the page's tooltip of the share itself has them too."""
    if share.low is None or share.high is None:
        return Cell(quantities.MISSING, None, missing=share.reason, tone="quiet")
    return Cell(f"{quantities.percent(share.low, 1)} to {quantities.percent(share.high, 1)}", 100 * share.low)


def _written(training: Training | None, unit: str, source: str, read: Read, reason: str) -> Cell:
    found = None if training is None else read(training)
    value = found if isinstance(found, Value) else Value(found, unit, source, reason=reason)
    value = replace(value, reason=NO_TRAINING) if training is None else value
    if unit == "ns":
        return quantity(value, quantities.amount(value.value, unit))
    cell = percents([value], decimals=1)[0]
    return replace(cell, text=f"{cell.text}{wording.interval(value.low, value.high)}")


Read = Callable[[Training], Value | float | None]
ROWS: tuple[tuple[str, str, str, Read, str], ...] = (
    ("training", "ns", "derived", lambda one: one.train, ""),
    ("validation", "ns", "derived", lambda one: one.validate, reasons.NOTHING_VALIDATED),
    ("test", "ns", "measured", lambda one: one.test, reasons.NOTHING_TESTED),
    ("training, validation and test", "ns", "derived", lambda one: one.whole, ""),
    ("right in the last validation", "1", "measured", lambda one: one.epochs[-1].right, reasons.NOTHING_VALIDATED),
    ("right in the test", "1", "measured", lambda one: one.right, reasons.NOTHING_TESTED),
)
"""Of trainings side by side: name, unit, source, how it is read, why there may be none."""
