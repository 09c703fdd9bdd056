"""Sonda from Python: observe a block, load runs, compare them. Runs show themselves in notebooks.

>>> with sonda.profile() as run:      # doctest: +SKIP
...     train(model)
>>> run                               # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sonda.record.store import Store
from sonda.workloads import data as data

if TYPE_CHECKING:
    from sonda.analysis.simulated.exploration import Exploration, Point
    from sonda.analysis.summary import Summary
    from sonda.record.run import Run, RunInfo
    from sonda.record.spans import Spans
    from sonda.report.blocks import View
    from sonda.report.display import ComparisonDisplay, Drawing, InterferenceDisplay, Layers, StepPhases

Where = Store | Path | str | None
"""A store, or its directory; None: `$SONDA_HOME`, or its default."""


class Profile:
    """A run of any kind, which shows itself: as text when printed, as tables in a notebook."""

    def __init__(self, run: Run | None = None) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        """The stored run itself. Raises RuntimeError before the block has ended."""
        if self._run is None:
            raise RuntimeError("the block has not ended yet: look at the profile after the with statement")
        return self._run

    @property
    def id(self) -> str:
        """The run's id, as `sonda ls` lists it."""
        return self.run.id

    @property
    def info(self) -> RunInfo:
        """Machine, versions, seeds, probes and what they lacked."""
        return self.run.info

    @property
    def spans(self) -> Spans:
        """The recorded intervals, column by column."""
        return self.run.spans

    @cached_property
    def summary(self) -> Summary:
        """What limits the run, its phases and layers, as plain data."""
        from sonda.analysis.run_summary import summarise

        return summarise(self.run)

    @cached_property
    def _view(self) -> View:
        from sonda.report.views.kinds import view_of

        return view_of(self.run, self.__dict__.get("summary"))

    def to_document(self) -> dict[str, Any]:
        """The shown content as plain JSON values, metrics by name with unit and source."""
        return self._view.document()

    @property
    def layers(self) -> Layers:
        """The layers of the judged part, which show themselves; also `to_arrow()` and `to_pandas()`."""
        from sonda.report.display import Layers

        return Layers(self.summary.parts[0] if self.summary.parts else None)

    @property
    def phases(self) -> StepPhases:
        """The phases of the judged part, which show themselves; also `to_arrow()` and `to_pandas()`."""
        from sonda.report.display import StepPhases

        return StepPhases(self.summary.parts[0] if self.summary.parts else None)

    def roofline(self) -> Drawing:
        """The layers under the machine's ceilings, as a figure that shows itself. Raises SondaError without them."""
        from sonda.report.display import roofline_drawing

        return roofline_drawing(self.summary)

    def to_arrow(self) -> Any:
        """All spans as an Arrow table, a row each, metrics as columns `quantity:source`."""
        return self.run.spans.to_arrow()

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame. Raises SondaError if pandas is not installed."""
        from sonda.report.display import arrow_to_pandas

        return arrow_to_pandas(self.to_arrow())

    def report(self, path: str | Path) -> Path:
        """Write one HTML page that works offline; returns its path."""
        from sonda.report.page import write_page

        return write_page(Path(path), [self.summary], [self.run])

    def show(self, detail: int = 0, rows: int | None = None) -> None:
        """Print the run: `detail` 0 is the first screen, as `print(run)`; 1 adds the tables, 2 counters, missing
        sensors and footnotes. `rows` is the number of layers to list."""
        from sonda.report.blocks import Detail

        print(self._view.text(rows=rows, detail=Detail(min(max(detail, 0), Detail.ALL))))

    def __repr__(self) -> str:
        if self._run is None:
            return "<profile of a block that has not ended>"
        return self._view.text(color=False)

    def _repr_html_(self) -> str | None:
        return self._view.fragment() if self._run is not None else None


class Explored(Profile):
    """An exploration that shows itself: the best points and the Pareto front when printed, a table in a notebook."""

    @cached_property
    def exploration(self) -> Exploration:
        """The result as plain data: the sentence, the best points, the front, why others are impossible."""
        from sonda.analysis.simulated.exploration import explored

        return explored(self.run, self.summary.title)

    @property
    def points(self) -> Any:
        """All points as an Arrow table, a row each: settings, cycles, energy and area with bounds, `front`."""
        return self.run.points

    @property
    def front(self) -> tuple[Point, ...]:
        """The points that no other beats in cycles, energy and area, by cycles."""
        return self.exploration.front

    @property
    def best(self) -> dict[str, Point]:
        """The points with the least `cycles`, `energy`, `area`, and with the least product of all (`knee`)."""
        return self.exploration.best

    def to_arrow(self) -> Any:
        """The same as `points`; `to_pandas()` gives them as a pandas DataFrame."""
        return self.points


def _open_store(store: Where) -> Store:
    from sonda.analysis.run_rows import describe_new_runs

    describe_new_runs()
    return store if isinstance(store, Store) else Store(store)


@contextmanager
def profile(name: str = "", count: bool = True, stacks: bool = True, store: Where = None) -> Iterator[Profile]:
    """Observe what a block does with PyTorch, Keras, TensorFlow, JAX or PyTensor, without changing its results.

    The profile is filled when the block ends. If the block raises, the run is incomplete and the exception passes on.
    Jitted functions that only an object or a closure holds are not seen: a warning names them as the block begins.
    A block without a step warns as it ends.
    `count` uses the first step of each new input shape to count FLOPs, bytes and memory.
    `stacks` samples the stacks of this process's threads, to name lines that take time outside of layers.
    """
    from sonda.targets.program.block import observe_block

    result = Profile()
    with observe_block(_open_store(store), name, count, stacks) as observed:
        try:
            yield result
        finally:
            result._run = observed.finish()


def load(reference: str = "last", store: Where = None) -> Profile:
    """Load a run by its path, a tag, the beginning of its id, or `last`. An exploration is an `Explored`."""
    run = _open_store(store).one(reference)
    return Explored(run) if run.info.kind == "exploration" else Profile(run)


def import_trace(
    *paths: str | Path, store: Where = None, workers: int = 0, on_cluster: str = "", run: str = ""
) -> Profile:
    """Read another tool's file as a run, as `sonda import` does. Several traces are ranks, which workers share.

    `run` selects a run of a TensorBoard log directory instead of the newest.
    """
    from sonda.studies.executors.choice import spread_for
    from sonda.targets.imported.launcher import import_files

    with spread_for(workers, on_cluster) as spread:
        return Profile(import_files([Path(path) for path in paths], _open_store(store).root, run=run, spread=spread))


def compare(a: str | Profile, b: str | Profile, store: Where = None) -> ComparisonDisplay:
    """Compare B with A; the result shows itself. A tag of several runs means all of them.

    `compare("main", "head").check(0.05)` says whether B is slower by more than 5 %. Raises SondaError, also if a run is
    on both sides.
    """
    from sonda.analysis.comparison.runs import compare as compare_runs
    from sonda.analysis.comparison.runs import refuse_same_run
    from sonda.report.display import display_comparison

    where = _open_store(store)

    def runs(side: str | Profile) -> Sequence[Run]:
        return [side.run] if isinstance(side, Profile) else where.find(side)

    left, right = list(runs(a)), list(runs(b))
    refuse_same_run(left, right)
    return display_comparison(compare_runs(left, right))


def run(workload: str, *, on: str = "cpu", store: Where = None, **settings: Any) -> Profile:
    """Run a workload in a process of its own, as `sonda run` does.

    Keywords that `sonda run` knows (`train`, `steps`, `threads`, `precision`, …) are settings; the others are the
    workload's own options: `sonda.run("resnet34", train=True, batch=16)`. Raises SondaError; a program is no workload.
    """
    if workload.endswith(".py"):
        from sonda.record.errors import SondaError

        raise SondaError(
            f"{workload} is a program, and sonda.run() runs networks",
            f"type: sonda run {workload}, or put `with sonda.profile() as run:` around a part of it",
        )
    from sonda.targets.job import make_job
    from sonda.targets.pipeline import measure

    return Profile(measure(make_job({"workload": workload, "on": on, **settings}), _open_store(store)))


def try_program(command: Sequence[str], *, seconds: float = 300.0, store: Where = None) -> Profile:
    """Run an unmodified program and try remedies on it, as `sonda run --try -- COMMAND` does.

    `seconds` is the time for all tries together. `summary.trials` has what each brought. Raises SondaError if Sonda
    cannot observe the command.

    >>> sonda.try_program(["python", "train.py"])      # doctest: +SKIP
    """
    from sonda.studies.engine.program_trials import ProgramTrials
    from sonda.targets.program.launcher import WatchSettings, refuse_isolated, run_command

    refuse_isolated(command)
    trials = ProgramTrials(command, seconds)
    return Profile(run_command(command, _open_store(store), WatchSettings(), further=[trials])[0])


def explore(
    workload: str,
    vary: str | Sequence[str] | Mapping[str | tuple[str, ...], Any],
    *,
    on: str = "",
    mapping: str = "",
    set: str = "",
    store: Where = None,
    workers: int = 0,
    on_cluster: str = "",
    **options: Any,
) -> Explored:
    """Simulate a workload on many accelerators at once, as `sonda explore` does.

    `vary` gives values by field, as a list or as text: `{"multipliers": "64..1024*2", "read_ports": [16, 64]}`. A tuple
    of fields varies together: `{("rows", "columns"): [(8, 16), (16, 32)]}`. It may also be text as on the command
    line: `"multipliers=64..1024*2 read_ports=16,64"`. `workers` are processes of this machine, `on_cluster` is the
    address of a Dask scheduler. Other keywords are the workload's own options. Raises SondaError.
    """
    from sonda.studies.executors.choice import executor_for
    from sonda.studies.explore.exploration import explore as explore_space
    from sonda.studies.explore.space import read_space
    from sonda.targets.job import make_job

    job = make_job({"workload": workload, "on": on, "mapping": mapping, "set": set, **options})
    with executor_for(workers, on_cluster) as executor:
        return Explored(explore_space(job, read_space(vary), _open_store(store), executor=executor))


def corun(
    participants: Sequence[str],
    *,
    cores: str = "",
    seconds: float = 5.0,
    repeat: int = 3,
    timeout: float = 120.0,
    ways: str = "",
    partition: str = "",
    bandwidth: str = "",
    sweep_ways: bool = False,
    probe: str = "",
    store: Where = None,
) -> InterferenceDisplay:
    """Run programs alone, in pairs and all together, as `sonda corun` does; returns how they slow each other.

    The result shows itself, and the experiment is kept as a run:
    `sonda.corun(["mlp --train", "cnn --batch 8", "stress-bandwidth"], cores="0,1,2")`.
    """
    from sonda.analysis.corun.interference import interference
    from sonda.report.display import display_interference
    from sonda.targets.corun.launcher import corun as carry_out
    from sonda.targets.corun.plan import CorunSettings

    setting = CorunSettings(seconds, repeat, timeout, ways, partition, bandwidth, sweep_ways, probe)
    return display_interference(interference(carry_out(participants, _open_store(store), cores, setting)))


def region(name: str) -> AbstractContextManager[None]:
    """Mark a region by name for `sonda energy`. Costs one line in a file, and nothing if nobody measures.

    >>> with sonda.region("training"):      # doctest: +SKIP
    ...     train(model)
    """
    from sonda.probes.energy.regions import region as announce

    return announce(name)
