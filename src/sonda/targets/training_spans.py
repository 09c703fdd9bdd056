"""Walks of a training on the spans of its run: losses, accuracies, and epochs that an earlier process has trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sonda.record.span import Spans, Words, joined
from sonda.record.training import Trained, Walk


def with_walks(spans: Spans, trained: Trained, origin: int) -> Spans:
    """The spans with what is known of every walk; `origin` is when the run began, ns.

    Walks without a span of their own get one: those of ranks that were lost and started again where they were, so that
    their energy is known too; those of an earlier command before this one's beginning, with their own durations, end to
    end.
    """
    earlier = sum(walk.epoch < trained.resumed and walk.part != "test" for walk in trained.walks)
    rank = spans.number("rank")
    rows = np.flatnonzero(spans.where(kind="epoch"))
    first = rows[rank[rows] == (rank[rows].min() if len(rows) else 0)]
    call, name = spans.number("call").copy(), spans.words("name").decoded()
    call[rows] = np.where(name[rows] == "test", trained.walks[-1].epoch, call[rows] + trained.resumed)
    spans.number("call")[:] = call
    own = trained.walks[earlier:]
    if len(first) != len(own):  # a framework that announces no epochs
        first, missing = np.zeros(0, np.int64), own
    else:
        missing = []
    count = len(spans)
    here = _of_this_run(trained.walks[:earlier], own, origin)
    spans = _with_rows(
        spans, trained.walks[: earlier - here], [*trained.walks[earlier - here : earlier], *missing], origin
    )
    places = [*range(count + 1, count + 1 + 2 * earlier, 2), *first.tolist(),
              *range(count + 1 + 2 * earlier, len(spans), 2)]  # fmt: skip
    for column, values in {
        "loss:measured": [np.nan if walk.loss is None else walk.loss for walk in trained.walks],
        "accuracy:measured": [np.nan if walk.accuracy is None else walk.accuracy for walk in trained.walks],
        "samples:counted": [walk.samples for walk in trained.walks],
    }.items():
        metric = spans.metrics.setdefault(column, np.full(len(spans), np.nan))
        metric[places] = values
    for column, value in (
        ("loading:measured", trained.loading_ns),
        ("initialisation:measured", trained.initialisation_ns),
    ):
        spans.metrics[column] = np.full(len(spans), np.nan)
        spans.metrics[column][0] = value
    return spans


def _of_this_run(before: Sequence[Walk], own: Sequence[Walk], origin: int) -> int:
    """How many of the earlier walks, the last of them, were done since the run began.

    All were clocked since the machine was started: one that would end after the next began is of another start.
    """
    count = 0
    latest = own[0].begin if own else None
    for walk in reversed(before):
        if walk.begin < origin or (latest is not None and walk.end > latest):
            break
        count, latest = count + 1, walk.begin
    return count


def _with_rows(spans: Spans, before: Sequence[Walk], own: Sequence[Walk], origin: int) -> Spans:
    """Spans of a part and of an epoch for each of these walks, behind all others."""
    walks = [*before, *own]
    if not walks:
        return spans
    durations = [walk.end - walk.begin for walk in walks]
    starts = [-sum(durations[at : len(before)]) for at in range(len(before))]
    starts += [walk.begin - origin for walk in own]
    first = len(spans)
    more = Spans(
        {
            "start": np.repeat(starts, 2),
            "duration": np.repeat(durations, 2),
            "call": np.array([number for walk in walks for number in (0, walk.epoch)]),
        },
        {
            "kind": Words.of([kind for _ in walks for kind in ("part", "epoch")]),
            "name": Words.of([walk.part for walk in walks for _ in range(2)]),
        },
    )
    parent = np.array([place for at in range(len(walks)) for place in (0, first + 2 * at)], dtype=np.int64)
    return joined(spans, more, parent)
