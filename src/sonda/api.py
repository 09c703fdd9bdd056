"""Sonda from Python: observe a block, load runs, compare them. Runs show themselves in notebooks.

>>> with sonda.profile() as run:      # doctest: +SKIP
...     train(model)
>>> run                               # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonda.record.store import Store

if TYPE_CHECKING:
    from sonda.analysis.comparison import Comparison
    from sonda.analysis.summary import Summary
    from sonda.record.run import Run, RunInfo
    from sonda.record.span import Spans


class Profile:
    """A run that shows itself: as text when printed, as tables in a notebook."""

    def __init__(self, run: Run | None = None) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        if self._run is None:
            raise RuntimeError("the block has not ended yet: look at the profile after the with statement")
        return self._run

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def info(self) -> RunInfo:
        return self.run.info

    @property
    def spans(self) -> Spans:
        return self.run.spans

    @cached_property
    def summary(self) -> Summary:
        """What limits the run, its phases and layers, as plain data."""
        from sonda.analysis.summarise import summarise

        return summarise(self.run)

    def to_document(self) -> dict[str, Any]:
        """The summary as plain JSON values, metrics by name with unit and source."""
        from sonda.report.document import to_document

        return to_document(self.summary)

    def report(self, path: str | Path) -> Path:
        """Write one HTML page that works offline; returns its path."""
        from sonda.report.page import write_page

        return write_page(Path(path), [self.summary], [self.run])

    def __repr__(self) -> str:
        if self._run is None:
            return "<profile of a block that has not ended>"
        from sonda.report.terminal import render_summary

        return render_summary(self.summary, color=False)

    def _repr_html_(self) -> str:
        from sonda.report.notebook import html_fragment

        return html_fragment(self.summary)


@contextmanager
def profile(name: str = "", count: bool = True, store: Store | None = None) -> Iterator[Profile]:
    """Observe the PyTorch work of a block, without changing what it computes.

    The profile is filled when the block ends, also by an exception, which is passed on; the run is then incomplete.
    `count` spends the first step of each new input shape on counting FLOPs, bytes and memory.
    """
    from sonda.targets.block import observe_block

    result = Profile()
    with observe_block(store or Store(), name, count) as observed:
        try:
            yield result
        finally:
            result._run = observed.finish()


def load(reference: str = "last", store: Store | None = None) -> Profile:
    """The run that a reference names: a path, a tag, the beginning of an id, or `last`."""
    return Profile((store or Store()).one(reference))


def compare(a: str | Profile, b: str | Profile, store: Store | None = None) -> Comparison:
    """B against A. A reference that names several runs (a tag) stands for all of them."""
    from sonda.analysis.compare import compare as compare_runs

    where = store or Store()

    def runs(side: str | Profile) -> Sequence[Run]:
        return [side.run] if isinstance(side, Profile) else where.find(side)

    return compare_runs(list(runs(a)), list(runs(b)))


def run(workload: str, *, on: str = "cpu", store: Store | None = None, **settings: Any) -> Profile:
    """Run a workload in a process of its own, as `sonda run` does.

    Keywords that `sonda run` knows (`train`, `steps`, `threads`, `precision`, …) are settings, the others the
    workload's own options: `sonda.run("resnet34", train=True, batch=16)`.
    """
    from sonda.targets.job import job_of
    from sonda.targets.measure import measure

    return Profile(measure(job_of({"workload": workload, "on": on, **settings}), store or Store()))
