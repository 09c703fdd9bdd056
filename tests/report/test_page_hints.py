"""Pages of every kind of run and study: behind every picture stands a table, and every number says what it is."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import report_examples as examples
from energy_summary_cases import counter, keep, rising
from interference_cases import experiment, known
from places import DATA
from ranks_cases import job, on_device
from serving_run_cases import evenly, synthetic
from sonda.analysis.run_summary import summarise
from sonda.record.run import ProbeState, Run
from sonda.record.store import Store
from sonda.report.page import page_text
from sonda.report.section import section_of
from sonda.report.views import imported_ranks as job_tables
from sonda.report.views.study.view import StudyView
from sonda.studies.explore.exploration import explore
from sonda.studies.explore.space import parse_space
from sonda.targets.imported.launcher import import_files
from sonda.targets.job import Job
from study_examples import constructed

S = 1_000_000_000
RANKS = DATA / "ranks"


class Read(HTMLParser):
    """What a page lacks: `bare` are figures in panels without a table, `silent` the columns whose numbers are mute."""

    def __init__(self) -> None:
        super().__init__()
        self.divs: list[tuple[str, str]] = []
        self.panels: list[tuple[list[str], list[bool]]] = []
        self.bare: list[str] = []
        self.silent: set[str] = set()
        self.figures = self.numbers = 0
        self.name, self.heads, self.at = "", [""], 0
        self.cell: dict[str, str | None] | None = None
        self.text, self.inside = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        kinds = (given.get("class") or "").split()
        if tag in ("div", "details"):
            self.divs.append((" ".join(kinds), given.get("id") or ""))
            if "panel" in kinds:
                self.panels.append(([], []))
            if {"figure", "icicle"} & set(kinds):
                self.figures += 1
                self.panels[-1][0].append(given.get("id") or "")
        elif tag == "table":
            self.name, self.heads = given.get("aria-label") or "", []
            if self.panels:
                self.panels[-1][1].append(True)
        elif tag == "tr":
            self.at = -1
        elif tag in ("td", "th"):
            self.at += 1
            self.cell, self.text = {**given, "kinds": " ".join(kinds)}, ""

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("div", "details"):
            kinds, _ = self.divs.pop()
            if "panel" in kinds.split():
                figures, tables = self.panels.pop()
                self.bare += figures if not tables else []
        elif tag in ("td", "th") and self.cell is not None:
            if "scope" in self.cell and self.cell["scope"] == "col":
                self.heads.append(self.text)
            elif tag == "td" and self._is_amount((self.cell["kinds"] or "").split()):
                self.numbers += 1
                if not self.cell.get("title"):
                    self.silent.add(f"{self.name}: {self.heads[self.at]}")
            self.cell = None

    def _is_amount(self, kinds: list[str]) -> bool:
        """Numbers that name a row are none."""
        return "number" in kinds and "name" not in kinds and any(map(str.isdigit, self.text))


def read(html: str) -> Read:
    found = Read()
    found.feed(html)
    return found


def several(folder: Path) -> str:
    return page_text([examples.training(), examples.inference()])


def of_run(run: Run) -> str:
    return page_text([summarise(run)], [run])


def metered(folder: Path) -> str:
    """A package at 60 W before the program, then at 100 to 150 W for four seconds."""
    energy = {
        "interval": 1.0, "readings": 7, "idle": [-2 * S, 0], "used": ["cpu"], "devices": {}, "missing": [],
        "counters": [counter("package-0 energy")], "regions": [["hot", S, 3 * S], ["hot", 3 * S, 4 * S]],
    }  # fmt: skip
    samples = rising("package-0 energy", "cpu", [60, 60, 100, 150, 150, 100])
    return of_run(keep(folder, energy, samples))


def traffic(folder: Path) -> str:
    probes = [ProbeState("energy", "ok")]
    return of_run(synthetic(folder, evenly(np.arange(2, 102) * 1_000_000), probes, scenario="single-stream"))


def explored(folder: Path) -> str:
    job = Job(workload="dlrm", options={"batch": "4"}, on="sim:maeri-256", set="rn_bw=16 clock_GHz=1")
    return of_run(explore(job, parse_space(["multipliers=64..256*2", "dn_bw=16,64"]), Store(folder), ["swept"]))


PAGES: dict[str, Callable[[Path], str]] = {
    "several": several,
    "corun": lambda folder: of_run(experiment(folder, known)),
    "serving": traffic,
    "energy": metered,
    "explored": explored,
    "ranks": lambda folder: of_run(import_files([RANKS], folder / "runs")),
}


@pytest.mark.parametrize(
    ("name", "figures"), [("several", 5), ("corun", 1), ("serving", 1), ("energy", 1), ("explored", 2), ("ranks", 1)]
)
def test_a_page_has_a_table_behind_every_picture_and_no_mute_number(name: str, figures: int, tmp_path: Path) -> None:
    found = read(PAGES[name](tmp_path))
    assert (found.bare, found.silent) == ([], set())
    assert found.figures >= figures and found.numbers > 3


@pytest.mark.parametrize("name", ["corun", "dlrm-accelerator", "hybrid", "serving", "tensorflow-optimisations"])
def test_so_has_a_page_of_a_study(name: str, tmp_path: Path) -> None:
    found = read(section_of(StudyView(constructed(name, tmp_path))).html)
    assert (found.bare, found.silent) == ([], set())
    assert found.figures and found.numbers > 3


def test_the_table_behind_ranks_and_steps_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 1,000 µs, of which ranks compute 200, 300 and 600 and wait for the last 400, 300 and 0."""
    found = job(tmp_path, [on_device(compute, 600) for compute in (200, 300, 600)])
    whole = job_tables.rank_steps_table(found)
    assert [[cell.order for cell in row] for row in whole.rows] == [
        [rank, at, 1e6 - wait, 1e6, wait, compute]
        for rank, (wait, compute) in enumerate([(4e5, 2e5), (3e5, 3e5), (0, 6e5)]) for at in range(2)
    ]  # fmt: skip
    assert [column.name.split()[0] for column in whole.columns] == ["rank", "step", "own", "step", "waits", "computes"]
    assert all(cell.unit == "ns" for row in whole.rows for cell in row[2:])
    monkeypatch.setattr(job_tables, "MOST_ROWS", 3)
    few = job_tables.rank_steps_table(found)
    assert [[row[0].text, row[2].order] for row in few.rows] == [["0", 6e5], ["1", 7e5], ["2", 1e6]]
    assert " to " in few.rows[0][1].text
