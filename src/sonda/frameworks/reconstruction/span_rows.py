"""Rows of the table of spans: those of steps and threads, gathered as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sonda.frameworks.reconstruction.events import ProcessEvents
from sonda.frameworks.reconstruction.input_sizes import Sums, size_columns
from sonda.frameworks.reconstruction.steps import Step
from sonda.frameworks.reconstruction.thread import DEVICE_START, DEVICE_TIME, ThreadSpans
from sonda.record.spans import Spans, Words

RUN, PART, EPOCH, STEP, PHASE = range(5)
"""Levels of the tree above layers and operations."""


class StepRows:
    """Rows of a thread's parts, epochs and steps, in order of time; the first has the number `first` in the table."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.rows: list[tuple[int, str, str, str, int, int, int]] = []
        """Level, kind, name, pass, parent, start, end."""
        self.shapes: list[float] = []
        """The number of the shapes of every row's inputs; NaN where it has none."""
        self.on_device: list[tuple[float, float]] = []
        """When a GPU began every row, and ns until it had ended it; NaN: not known."""
        self.sizes: list[tuple[int, Sums]] = []
        """Rows (positions in `rows`) of steps whose inputs differ in size, with the sums of these sizes."""
        self.bounds: list[tuple[int, int, int]] = []
        """Rows of steps with phases, and the rows of the first and the last phase of each in the thread's spans."""
        self.epoch_numbers: dict[int, int] = {}
        """Numbers of announced epochs by their rows."""

    def add(
        self, level: int, kind: str, name: str, parent: int, start: int, end: int, pass_name: str = "timed",
        shape: float = np.nan, window: tuple[float, float] = (np.nan, np.nan),
    ) -> int:  # fmt: skip
        """Append a row; its number in the table."""
        self.rows.append((level, kind, name, pass_name, parent, start, end))
        self.shapes.append(shape)
        self.on_device.append(window)
        return self.first + len(self.rows) - 1

    def note_bounds(self, step: Step, spans: ThreadSpans) -> None:
        """Note the first and last phase of the step whose row comes next, and the sizes of its inputs."""
        row = len(self.rows)
        if step.phases:
            phase_rows = spans.phase_rows[step.phases]
            first, last = int(phase_rows[0]), int(phase_rows[-1])
            self.bounds.append((row, spans.waits.get(first, first), last))
        if id(step) in spans.sizes:
            self.sizes.append((row, spans.sizes[id(step)]))


class SpanRows:
    """Gathers rows as arrays; `table` sorts them so that every parent stands before its children."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self.count = 0
        self.blocks: list[dict[str, np.ndarray]] = []
        self.metrics: list[tuple[int, dict[str, np.ndarray]]] = []
        self._process = 0
        self._shape_numbers: dict[tuple[int, frozenset[object]], int] = {}
        self.words: dict[str, dict[str, int]] = {
            name: {"": 0} for name in ("kind", "name", "path", "direction", "pass")
        }

    def _shape_number(self, inputs: frozenset[object]) -> float:
        """A number for the shapes of a step's inputs. Processes share no numbers: their models may differ."""
        return float(self._shape_numbers.setdefault((self._process, inputs), len(self._shape_numbers) + 1))

    def begin_process(self, collections: np.ndarray) -> None:
        """Begin a process: the threads that are added next belong to it. `collections` are its garbage collections."""
        self._process += 1
        self._collections = collections
        self._phases: list[tuple[np.ndarray, ...]] = []

    def code(self, column: str, word: str) -> int:
        codes = self.words[column]
        return codes.setdefault(word, len(codes))

    def add(self, metrics: dict[str, np.ndarray], **columns: np.ndarray) -> int:
        """Append rows; returns the number of the first."""
        first = self.count
        self.blocks.append(columns)
        self.metrics.append((first, metrics))
        self.count += len(columns["start"])
        return first

    def add_run(self, begin: int, end: int) -> None:
        self._add_few([(RUN, "run", "", "timed", -1, begin, end)], 0, 0)

    def add_totals(self, counted: dict[str, float]) -> None:
        """Add the counts of the whole program, from the opening of its counters to its end, to the row of the run."""
        self.metrics[0][1].update({column: np.array([value]) for column, value in counted.items()})

    def _add_few(
        self, spans: list[tuple[int, str, str, str, int, int, int]], thread: int, rank: int, call: Sequence[int] = ()
    ) -> int:
        """Append rows of (level, kind, name, pass, parent, start, end); `call` of each is 0 unless given."""
        count = len(spans)
        level, kind, name, passes, parent, start, end = zip(*spans, strict=True)
        return self.add(
            {},
            level=np.array(level, dtype=np.int32),
            kind=np.array([self.code("kind", word) for word in kind], dtype=np.int32),
            name=np.array([self.code("name", word) for word in name], dtype=np.int32),
            path=np.zeros(count, dtype=np.int32),
            direction=np.zeros(count, dtype=np.int32),
            passes=np.array([self.code("pass", word) for word in passes], dtype=np.int32),
            parent=np.array(parent),
            call=np.array(call or (0,) * count, dtype=np.int32),
            thread=np.full(count, thread),
            rank=np.full(count, rank, dtype=np.int32),
            start=np.array(start, dtype=np.int64),
            end=np.array(end, dtype=np.int64),
        )

    def add_thread(
        self, spans: ThreadSpans, paths: dict[int, str], events: ProcessEvents, thread: int, rank: int
    ) -> None:
        raw = spans.raw
        step_of_phase, pass_of_phase, step_index = self._add_steps(spans, thread, rank)
        keep = np.flatnonzero(spans.keep)
        if not len(keep):
            return
        definitions = events.definitions
        definition = raw.definition[keep]
        new_row = np.full(len(raw.start), -1, dtype=np.int64)
        new_row[keep] = self.count + np.arange(len(keep))
        parent = np.where(spans.parent[keep] >= 0, new_row[spans.parent[keep]], 0)
        phase = np.full(len(raw.start), -1, dtype=np.int64)
        phase[spans.phase_rows] = np.arange(len(spans.phase_rows))
        phase = inherit_values(phase, spans.parent, raw.level)[keep]
        in_phase = phase >= 0
        is_phase = np.isin(keep, spans.phase_rows)
        parent[is_phase] = step_of_phase[phase[is_phase]]
        passes = np.full(len(keep), self.code("pass", "timed"), dtype=np.int32)
        passes[in_phase] = pass_of_phase[phase[in_phase]]
        step = np.full(len(keep), -1, dtype=np.int64)
        step[in_phase] = step_index[phase[in_phase]]
        if len(spans.phase_rows):
            rows = spans.phase_rows
            self._phases.append((raw.start[rows], raw.end[rows], new_row[rows], pass_of_phase, step_index))
        else:
            self._under_phases(raw.start[keep], spans.parent[keep] < 0, parent, passes, step)

        def by_definition(column: str, words: list[str]) -> np.ndarray:
            return np.array([self.code(column, word) for word in words], dtype=np.int32)[definition]

        kinds = np.array([defined.get("kind", "") for defined in definitions], dtype=object)
        metrics = {name: values[keep] for name, values in spans.metrics.items()}
        if DEVICE_START in metrics:
            metrics[DEVICE_START] = metrics[DEVICE_START] - self.origin
        is_op = kinds[definition] == "op"
        if is_op.any():
            for key in ("flops", "bytes"):
                values = np.array([_number(defined.get(key)) for defined in definitions])[definition]
                metrics[f"{key}:nominal"] = np.where(is_op, values, np.nan)
            executed = np.array([_number(defined.get("executed")) for defined in definitions])[definition]
            if not np.isnan(executed[is_op]).all():
                metrics["executed_flops:nominal"] = np.where(is_op, executed, np.nan)
        is_layer = kinds[definition] == "layer"
        activations = find_activations(events, definition, phase, spans)
        if activations is not None:
            metrics["activations:counted"] = activations
        self.add(
            metrics,
            level=(PHASE + raw.level[keep]).astype(np.int32),
            kind=by_definition("kind", list(kinds)),
            name=by_definition("name", [defined.get("name", "") for defined in definitions]),
            path=by_definition("path", [paths.get(number, "") for number in range(len(definitions))]),
            direction=by_definition("direction", [defined.get("direction", "") for defined in definitions]),
            passes=passes,
            parent=parent,
            call=number_calls(step, definition, is_layer),
            thread=np.full(len(keep), thread),
            rank=np.full(len(keep), rank, dtype=np.int32),
            start=raw.start[keep],
            end=raw.end[keep],
        )

    def _under_phases(
        self, start: np.ndarray, outermost: np.ndarray, parent: np.ndarray, passes: np.ndarray, step: np.ndarray
    ) -> None:
        """Put the rows of a thread without phases under phases of the process's other threads, by their starts."""
        for begins, ends, rows, pass_of_phase, step_index in self._phases:
            at = np.searchsorted(begins, start, "right") - 1
            inside = (at >= 0) & (start < ends[np.maximum(at, 0)])
            at = at[inside]
            passes[inside], step[inside] = pass_of_phase[at], step_index[at]
            parent[inside & outermost] = rows[at][outermost[inside]]

    def _add_steps(self, spans: ThreadSpans, thread: int, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Add parts, epochs and steps; for every phase the row of its step, its pass and the step's number."""
        count = len(spans.phase_rows)
        step_of_phase = np.zeros(count, dtype=np.int64)
        pass_of_phase = np.full(count, self.code("pass", "timed"))
        step_index = np.full(count, -1, dtype=np.int64)
        steps = StepRows(self.count)
        number = 0
        for section in spans.sections:
            part = steps.add(PART, "part", section.part, 0, section.start, section.end)
            epochs: dict[int | None, int] = {None: part}
            if section.epoch is not None:
                steps.epoch_numbers[len(steps.rows)] = section.epoch
                epochs[None] = steps.add(EPOCH, "epoch", section.part, part, section.start, section.end)
            ends = {step.iterator: step.end for step in section.steps}
            for step in section.steps:
                if step.iterator not in epochs:
                    epochs[step.iterator] = steps.add(EPOCH, "epoch", "", part, step.start, ends[step.iterator])
                pass_name = spans.step_pass.get(id(step), "timed")
                pass_of_phase[step.phases] = self.code("pass", pass_name)
                step_index[step.phases] = number
                number += 1
                steps.note_bounds(step, spans)
                # A step of several inputs has a shape of its own, and so has another model.
                inputs = spans.inputs(step)
                shape = self._shape_number(inputs) if inputs else np.nan
                window = spans.device_window(step.phases)
                step_of_phase[step.phases] = steps.add(
                    STEP, "step", "", epochs[step.iterator], step.start, step.end, pass_name, shape, window
                )
        if steps.rows:
            self._add_step_rows(steps, spans, thread, rank)
        return step_of_phase, pass_of_phase, step_index

    def _add_step_rows(self, steps: StepRows, spans: ThreadSpans, thread: int, rank: int) -> None:
        """Append these rows with their metrics."""
        count = len(steps.rows)
        self._add_few(steps.rows, thread, rank, [steps.epoch_numbers.get(row, 0) for row in range(count)])
        metrics = self.metrics[-1][1]
        metrics["shape:counted"] = np.array(steps.shapes)
        if len(self._collections):
            metrics.update(collection_columns(steps.rows, self._collections))
        metrics.update(size_columns(steps.sizes, count))
        if spans.on_device is not None:
            begin, time = np.array(steps.on_device).T
            metrics.update({DEVICE_TIME: time, DEVICE_START: begin - self.origin})
        for boundaries in spans.boundaries:
            for column, values in boundaries.columns_across(steps.bounds, count, spans.definitions).items():
                # Groups take turns: a quantity that several have is in one of them in every step.
                others = metrics.get(column, values)
                metrics[column] = np.where(np.isnan(others), values, others)

    def table(self) -> Spans:
        """The table of all rows. This empties the blocks: nothing can be added afterwards."""

        def joined(name: str) -> np.ndarray:
            # Column by column, so that a long run is in memory once and not twice.
            return np.concatenate([block.pop(name) for block in self.blocks])

        start, level = joined("start"), joined("level")
        order = np.lexsort((level, start))
        del level
        start = start[order]
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        parent = joined("parent")[order]
        parent = np.where(parent >= 0, place[parent], -1)
        del place
        numbers = {
            "parent": parent,
            "call": joined("call")[order],
            "rank": joined("rank")[order],
            "thread": joined("thread")[order],
            "duration": joined("end")[order] - start,
            "start": start - self.origin,
        }
        words = {
            name: Words(joined("passes" if name == "pass" else name)[order], tuple(codes))
            for name, codes in self.words.items()
        }
        metrics = {}
        for name in sorted({name for _, block in self.metrics for name in block}):
            values = np.full(len(order), np.nan)
            for first, block in self.metrics:
                column = block.pop(name, ())
                values[first : first + len(column)] = column
            metrics[name] = values[order]
        return Spans(numbers, words, metrics)


def collection_columns(rows: Sequence[tuple[Any, ...]], collections: np.ndarray) -> dict[str, np.ndarray]:
    """Number and time of the garbage collections that began in each step; NaN for other rows."""
    order = np.argsort(collections[:, 0])
    begins = collections[order, 0]
    spent = np.append(0, np.cumsum(collections[order, 1] - begins))
    starts, ends = (np.searchsorted(begins, [row[side] for row in rows]) for side in (5, 6))
    is_step = np.array([row[1] == "step" for row in rows])
    return {
        "collections:counted": np.where(is_step, ends - starts, np.nan),
        "collection_time:measured": np.where(is_step, spent[ends] - spent[starts], np.nan),
    }


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else np.nan


# ---- Columns that follow from other columns: values of ancestors, numbers of calls, activations ---------------------


def inherit_values(values: np.ndarray, parent: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Give every row without a value that of its nearest ancestor."""
    values = values.copy()
    for which in range(2, int(level.max(initial=0)) + 1):
        rows = np.flatnonzero((level == which) & (values < 0) & (parent >= 0))
        values[rows] = values[parent[rows]]
    return values


def number_calls(step: np.ndarray, definition: np.ndarray, is_layer: np.ndarray) -> np.ndarray:
    """Number the calls of each layer within a step, from 0 on."""
    numbers = np.zeros(len(step), dtype=np.int32)
    rows = np.flatnonzero(is_layer)
    if len(rows):
        order = rows[np.lexsort((rows, definition[rows], step[rows]))]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (np.diff(step[order]) != 0) | (np.diff(definition[order]) != 0)
        at = np.arange(len(order))
        numbers[order] = at - np.maximum.accumulate(np.where(new, at, 0))
    return numbers


def find_activations(
    events: ProcessEvents, definition: np.ndarray, phase: np.ndarray, spans: ThreadSpans
) -> np.ndarray | None:
    """The activations (bytes) of each layer when its forward ended, in the row of its first call; None without any."""
    stated = [fact for fact in events.facts if "activations" in fact]
    if not stated:
        return None
    values = np.full(len(definition), np.nan)
    starts, ends = spans.raw.start[spans.phase_rows], spans.raw.end[spans.phase_rows]
    for fact in stated:
        inside = np.flatnonzero((starts <= fact["at"]) & (fact["at"] <= ends))
        rows = np.flatnonzero(np.isin(phase, inside))
        layers, first = np.unique(definition[rows], return_index=True)
        first_call = dict(zip(layers.tolist(), rows[first].tolist(), strict=True))
        for code, size in fact["activations"].items():
            row = first_call.get(int(code) // 2)
            if row is not None:
                values[row] = size
    return values
