"""Runs written down by hand for the tests of the record: two spans, known times, one metric."""

from __future__ import annotations

import numpy as np

from plain_runs import run_info
from sonda.record.run import Run, RunInfo, new_id, now, write_run
from sonda.record.samples import Sample
from sonda.record.spans import Spans, Words
from sonda.record.store import Store


def two_spans() -> Spans:
    """A run of 100 ns that holds a step of 40 ns with 12 FLOP; the run itself has no count."""
    return Spans(
        {"start": np.array([0, 10]), "duration": np.array([100, 40]), "parent": np.array([-1, 0])},
        {"kind": Words.of(["run", "step"]), "name": Words.of(["run", "first"])},
        {"flops:nominal": np.array([np.nan, 12.0])},
    )


def an_info(identity: str = "", created: str = "") -> RunInfo:
    return run_info(id=identity or new_id(), created=created or now(), status="complete")


def a_sample() -> Sample:
    return Sample(500, "power", 41.5, "W", "measured")


def keep(store: Store, identity: str = "", created: str = "") -> Run:
    """Such a run, in the store."""
    return write_run(store.root, an_info(identity, created), two_spans(), [a_sample()])
