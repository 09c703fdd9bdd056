"""Files of other tools as a run: `sonda import`. Nothing is started; what another tool saw is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sonda.imports.importer import read_files
from sonda.imports.rank_workers import Spread
from sonda.record.progress import Say
from sonda.record.run import Run, RunInfo, keep_run, now
from sonda.record.store import Store
from sonda.record.workload import Workload
from sonda.targets.instrument import NO_SPANS, Circumstances, Draft, Launcher, Observation, RunPlan
from sonda.targets.pipeline import make_run


def import_files(
    paths: Sequence[Path], root: Path, say: Say = lambda text: None, run: str = "", spread: Spread | None = None
) -> Run:
    """Read files into a run under `root`. `run` and `spread` are those of `read_files`. Raises SondaError."""
    return make_run(ImportLauncher(paths, run, spread), [], Store(root), say=say)


class ImportLauncher(Launcher):
    """Reads files of other tools. Their tables, which may be larger than memory, are moved into the run as they are."""

    kind = "imported"
    offers = frozenset()

    def __init__(self, paths: Sequence[Path], run: str = "", spread: Spread | None = None) -> None:
        self.paths, self.run, self.spread = paths, run, spread

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        self.imported = read_files(self.paths, plan.directory, plan.say, self.run, self.spread)

    def observe(self, plan: RunPlan) -> Observation:
        imported = self.imported
        return Observation(
            NO_SPANS,
            workload=Workload.of(imported.workload),
            target=imported.target,
            circumstances=Circumstances(now(), imported.machine, imported.versions, notes=imported.notes),
            complete=imported.complete,
        )

    def keep(self, plan: RunPlan, draft: Draft) -> Run:
        def fill(partial: Path) -> RunInfo:
            for path in plan.directory.iterdir():
                path.rename(partial / path.name)
            return draft.info

        return keep_run(plan.store.root, fill)
