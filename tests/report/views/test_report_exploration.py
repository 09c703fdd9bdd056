"""Explorations on the terminal, on a page, as files, and in the store as one run."""

from __future__ import annotations

import csv
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import sonda
from charts import across, charts_of
from command_line import run_command
from places import REPOSITORY
from sonda.analysis.findings import Remark
from sonda.analysis.run_summary import summarise
from sonda.analysis.simulated.exploration import Exploration, Point, amount, explored
from sonda.analysis.summary import Value
from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.simulated import PointReason
from sonda.record.store import Store
from sonda.report.blocks import Detail
from sonda.report.charts.chart import Dots, Points
from sonda.report.page import page_text
from sonda.report.screen import render
from sonda.report.views.compare.screen import side_by_side_blocks
from sonda.report.views.exploration import ExplorationView, front_table, write_points
from sonda.report.views.steps.view import StepsView
from sonda.report.words import describe
from sonda.studies.explore.exploration import explore
from sonda.studies.explore.space import parse_space
from sonda.targets.job import Job


def point(number: int, cycles: float, energy: float, area: float, **settings: Any) -> Point:
    values = {
        "cycles": Value(cycles, "cycle", "simulated"),
        "energy": Value(energy, "J", "simulated", energy / 2, energy * 2),
        "area": Value(area, "mm2", "simulated", area / 4, area * 4),
        "memory_cycles": Value(0, "cycle", "simulated"),
    }
    return Point(number, settings, values, "")


FRONT = (
    point(3, 1200, 5e-9, 8.0, multipliers=256, reduction="A[bold]B"),
    point(1, 2400, 4e-9, 4.0, multipliers=128, reduction="A[bold]B"),
    point(0, 9600, 3e-9, 2.0, multipliers=64, reduction="A[bold]B"),
)
FOUND = Exploration(
    run="abcd12345678",
    title="DLRM, inference",
    subtitle="sim:dlrm-hybrid",
    axes={"multipliers": ["64", "128", "256", "512"], "reduction": ["A[bold]B"]},
    points=4,
    possible=3,
    impossible=(PointReason(reason="x = N is odd", points=1, example="x = 3 is odd; make it even"),),
    unpriced=(),
    objectives=("cycles", "energy", "area"),
    front=FRONT,
    best={"cycles": FRONT[0], "energy": FRONT[2], "area": FRONT[2], "knee": FRONT[1]},
    on_host=("",),
    seconds=0.002,
    simulations=12,
    notes=(Remark("a note"),),
)


def test_the_sentence_comes_first_and_names_the_best() -> None:
    lines = ExplorationView(FOUND).text(300, color=False, detail=Detail.ALL).splitlines()
    assert lines[0] == "DLRM, inference · sim:dlrm-hybrid"
    assert lines[2].strip() == (
        "Fastest (1,200 cycles): multipliers=256 reduction=A[bold]B; least energy (3 nJ) and smallest (2 mm2): "
        "multipliers=64 reduction=A[bold]B; best trade (2,400 cycles, 4 nJ, 4 mm2): multipliers=128 reduction=A[bold]B."
    )


def test_the_front_is_a_table_and_counts_stand_below() -> None:
    text = ExplorationView(FOUND).text(200, short="abcd", color=False, detail=Detail.ALL)
    lines = [line.split() for line in text.splitlines()]
    head = next(line for line in lines if line[:1] == ["multipliers"])
    assert head == ["multipliers", "reduction", "cycles", "energy", "nJ", "area", "mm2", "stands", "out"]
    assert lines[lines.index(head) + 1][:5] == ["256", "A[bold]B", "1,200", "5.00", "8.00"]
    assert lines[lines.index(head) + 2][-2:] == ["best", "trade"]
    assert "4 points, 3 possible, 3 on the front; 12 simulations in 0.00 s: 2,000 points/s" in text
    assert "1 impossible: x = 3 is odd" in text
    assert "make it even" not in text
    assert text.endswith("Saved as run abcd. Page: sonda report abcd")


def test_reasons_that_several_points_share_are_shown_by_one_of_them() -> None:
    several = PointReason(reason="x = N is odd", points=3, example="x = 5 is odd; make it even")
    text = ExplorationView(Exploration(**{**FOUND.__dict__, "impossible": (several,)})).text(
        200, color=False, detail=Detail.ALL
    )
    assert "3 impossible, such as: x = 5 is odd\n" in text


def test_few_rows_keep_those_that_stand_out() -> None:
    text = ExplorationView(FOUND).text(200, rows=2, color=False, detail=Detail.ALL)
    assert "1 more on the front, with --rows 3" not in text, "three stand out, so three are shown"
    many = tuple(point(place, 1200 + place, 5e-9 - place * 1e-12, 8.0, multipliers=place) for place in range(3, 103))
    wide = Exploration(**{**FOUND.__dict__, "front": many, "best": {"cycles": many[0], "knee": many[-1]}})
    shown = ExplorationView(wide).text(200, rows=10, color=False, detail=Detail.ALL)
    assert "90 more on the front, with --rows 100" in shown
    assert "fastest" in shown
    assert "best trade" in shown


def test_settings_that_all_rows_share_stand_below_where_there_are_many() -> None:
    extra = {"a": 1, "b": 2, "c": "x"}
    front = tuple(
        point(place, 100.0 + place, 5e-9 - place * 1e-10, 8.0, multipliers=place, **extra) for place in range(2)
    )
    axes = {"multipliers": ["0", "1"], "a": ["1", "9"], "b": ["2"], "c": ["x", "y"]}
    wide = Exploration(
        **{**FOUND.__dict__, "axes": axes, "front": front, "best": {"cycles": front[0], "knee": front[0]}}
    )
    lines = ExplorationView(wide).text(200, color=False, detail=Detail.ALL).splitlines()
    assert any(line.split()[:2] == ["multipliers", "cycles"] for line in lines)
    assert "  all of them: a=1 b=2 c=x" in lines


def test_amounts_have_three_digits_and_a_prefix() -> None:
    assert amount(Value(1, "cycle", "simulated")) == "1 cycle"
    assert amount(Value(12345678, "cycle", "simulated")) == "12,345,678 cycles"
    assert amount(Value(1.2345e-7, "J", "simulated")) == "123 nJ"
    assert amount(Value(3e-13, "J", "simulated")) == "3e-13 J"
    assert amount(Value(2.0, "not stated", "simulated")) == "2 not stated"
    assert amount(Value(None, "J", "simulated")) == "unknown"


def test_the_document_has_metrics_with_unit_source_and_bounds() -> None:
    document = json.loads(json.dumps(ExplorationView(FOUND).document()))
    assert document["kind"] == "exploration"
    first = document["front"][0]
    assert first["settings"] == {"multipliers": 256, "reduction": "A[bold]B"}
    assert first["metrics"]["energy:simulated"] == {
        "value": 5e-9, "unit": "J", "source": "simulated", "low": 2.5e-9, "high": 1e-8,
    }  # fmt: skip
    assert document["best"]["knee"]["point"] == 1
    assert document["impossible"] == [{"reason": "x = N is odd", "points": 1, "example": "x = 3 is odd; make it even"}]


# ---- a run in the store ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Run]:
    store = Store(tmp_path_factory.mktemp("runs"))
    space = parse_space(["multipliers=32..256*2", "dn_bw=16,64", "reduction=ASNETWORK,FENETWORK"])
    job = Job(workload="dlrm", options={"batch": "4"}, on="sim:maeri-256", set="rn_bw=16 clock_GHz=1")
    return store, explore(job, space, store, ["swept"])


def test_an_exploration_reads_back_from_the_store(kept: tuple[Store, Run]) -> None:
    store, run = kept
    again = store.one("swept")
    assert again.id == run.id
    assert again.points.equals(run.points)
    assert explored(again) == explored(run)
    front = again.points.filter(again.points["front"]).num_rows
    assert front == sum(1 + one.equal for one in explored(again).front) > 0


def test_the_front_of_the_run_is_what_its_rows_say(kept: tuple[Store, Run]) -> None:
    rows = kept[1].points.to_pylist()
    names = ("cycles:simulated", "energy:simulated", "area:simulated")
    known = [tuple(row[name] for name in names) for row in rows if row["impossible"] is None]
    for row in rows:
        mine = tuple(row[name] for name in names)
        if row["impossible"] is not None:
            assert mine == (None, None, None)
            assert not row["front"]
            continue
        beaten = any(all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine for other in known)
        assert row["front"] != beaten


def test_a_summary_says_what_was_found(kept: tuple[Store, Run]) -> None:
    summary = summarise(kept[1])
    assert summary.title == "DLRM, inference, batch 4"
    assert summary.verdicts[0].finding == explored(kept[1]).finding
    assert "Fastest" in StepsView(summary).text(color=False, detail=Detail.ALL)
    assert "DLRM" in render(side_by_side_blocks([summary, summary]), color=False)


def test_the_page_holds_the_front_and_two_pictures(kept: tuple[Store, Run]) -> None:
    run = kept[1]
    text = page_text([summarise(run)], [run])
    assert "Pareto front" in text
    assert "Cycles and energy" in text
    assert "Cycles and area" in text
    found = explored(run)
    figures = charts_of(ExplorationView(found, run.points).full())
    assert list(figures) == ["f0", "f1"] and all(f'id="run0{place}"' in text for place in figures)
    others, front = figures["f0"].marks
    assert isinstance(others, Dots) and isinstance(front, Points)
    assert len(front.points) == len(found.front)
    assert across(front) == sorted(filter(None, across(front)))
    shown = sum(row["impossible"] is None and not row["front"] for row in run.points.to_pylist())
    assert len(others.points) == shown
    # A scale that suits the numbers, so that ticks need no prefix.
    unit = re.fullmatch(r"energy, ([pnµm]J) \(simulated\)", figures["f0"].fields[0].y.title)
    assert unit is not None
    factor = {"pJ": 1e-12, "nJ": 1e-9, "µJ": 1e-6, "mJ": 1e-3}[unit[1]]
    joules = [one.values["energy"].value or 0.0 for one in found.front]
    assert [y * factor for _, y in filter(None, front.points)] == pytest.approx(joules)


def test_every_figure_of_the_front_says_its_source(kept: tuple[Store, Run]) -> None:
    found = explored(kept[1])
    table = front_table(found, found.front)
    shown = [at for at, column in enumerate(table.columns) if column.name.split()[0] in ("cycles", "energy", "area")]
    assert len(shown) == 3 and all(", simulated (" in row[at].hint for row in table.rows for at in shown)


def test_runs_and_explorations_share_a_page(kept: tuple[Store, Run]) -> None:
    summary = summarise(kept[1])
    text = page_text([summary, summary], [kept[1], kept[1]])
    assert len(re.findall("<h3[^>]*>Pareto front</h3>", text)) == 2


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_points_are_written_whole(form: str, kept: tuple[Store, Run], tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    path = write_points(tmp_path / f"points.{form}", kept[1].points, form)
    expected = kept[1].points.to_pylist()
    if form == "parquet":
        assert parquet.read_table(path).to_pylist() == expected
        return
    with open(path, encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == len(expected)
    for line, row in zip(read, expected, strict=True):
        assert line["multipliers"] == str(row["multipliers"])
        assert line["reduction"] == row["reduction"]
        assert line["impossible"] == (row["impossible"] or "")
        if row["cycles:simulated"] is not None:
            assert float(line["energy:simulated"]) == row["energy:simulated"]
    assert list(path.parent.iterdir()) == [path]


def test_points_go_nowhere_else(kept: tuple[Store, Run], tmp_path: Path) -> None:
    with pytest.raises(SondaError, match="not written as 'xlsx'"):
        write_points(tmp_path / "a", kept[1].points, "xlsx")
    with pytest.raises(SondaError, match="cannot write"):
        write_points(Path("/proc/nothing/points.csv"), kept[1].points, "csv")


def test_a_damaged_exploration_is_one_line(kept: tuple[Store, Run], tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / kept[1].directory.name
    shutil.copytree(kept[1].directory, copy)
    (copy / "points.parquet").write_bytes(b"nothing")
    with pytest.raises(SondaError, match=r"is damaged: points\.parquet"):
        summarise(Run.load(copy))
    (copy / "points.parquet").unlink()
    with pytest.raises(SondaError, match=r"is damaged: points\.parquet: no such file"):
        summarise(Run.load(copy))
    text = (kept[1].directory / "run.json").read_text().replace('"knee"', '"knie"')
    shutil.copy(kept[1].directory / "points.parquet", copy)
    (copy / "run.json").write_text(text)
    with pytest.raises(SondaError, match=r"^[^\n]* is damaged: run\.json: [^\n]*`knee`[^\n]*$"):
        Run.load(copy)
    text = re.sub(r'"knee": *[0-9]+', '"knee": 1000', (kept[1].directory / "run.json").read_text())
    (copy / "run.json").write_text(text)
    with pytest.raises(SondaError, match=r"^[^\n]* holds no exploration [^\n]*$"):
        summarise(Run.load(copy))


# ---- Python ------------------------------------------------------------------------------------------------------


def test_python_shows_what_was_found(tmp_path: Path) -> None:
    store = Store(tmp_path)
    vary = {("rows", "columns", "read_ports"): [(4, 4, 8), (8, 8, 16), (16, 16, 32)], "write_ports": [16, 256]}
    found = sonda.explore("dlrm", vary, on="sim:tpu-16x16", store=store, preset="5-1M-20-100")
    assert isinstance(found, sonda.Explored)
    assert "3 on the front" in repr(found)
    assert repr(found).startswith("DLRM, inference, batch 20 · sim:tpu-16x16")
    assert found.points.num_rows == 6
    assert [point.settings["rows"] for point in found.front] == [16, 8, 4], "larger meshes are faster and larger"
    cycles = {(row["rows"], row["columns"], row["read_ports"]): row["cycles:simulated"]
              for row in found.points.to_pylist()}  # fmt: skip
    assert list(cycles) == [(4, 4, 8), (8, 8, 16), (16, 16, 32)]
    assert found.best["cycles"].values["cycles"].value == min(cycles.values()) == cycles[16, 16, 32]
    assert repr(found.best["cycles"]).startswith("<point 4: rows=16 columns=16 read_ports=32 write_ports=16: ")
    assert found.to_document()["together"] == [["rows", "columns", "read_ports"]]
    assert found.to_document()["axes"]["rows"] == ["4", "8", "16"]
    assert "<script" not in found._repr_html_()
    assert describe(found.exploration.finding) in found._repr_html_()
    again = sonda.load("last", store)
    assert isinstance(again, sonda.Explored)
    assert repr(again) == repr(found)
    assert "Pareto front" in found.report(tmp_path / "page.html").read_text(encoding="utf-8")


def test_points_as_a_frame_need_pandas(kept: tuple[Store, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    found = sonda.Explored(kept[1])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SondaError, match=r"pandas is not installed; pip install pandas, or use \.to_arrow\(\)"):
        found.to_pandas()


def test_tiles_that_hold_at_every_point_are_said(tmp_path: Path) -> None:
    """dlrm-hybrid gives tiles for both of its engines; a search chooses its own."""
    said = "the description's tiles hold at every point of sim:dlrm-hybrid (perceptrons), sim:dlrm-hybrid (embeddings)"
    for settings, notes in (({}, 1), ({"mapping": "best"}, 0)):
        found = sonda.explore("dlrm", "multipliers=128,256", store=Store(tmp_path), batch=4, **settings)
        assert sum(note.startswith(said) for note in found.info.notes) == notes


def test_the_example_of_the_manual_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manual = (REPOSITORY / "docs" / "accelerators.md").read_text(encoding="utf-8")
    (example,) = [block.partition("```")[0] for block in manual.split("```python\n")[1:]]
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SONDA_HOME", str(tmp_path / "runs"))
    names = runpy.run_path("example.py")
    assert names["table"].num_rows == 3 * 2
    assert (tmp_path / "front.html").exists()


# ---- the command line --------------------------------------------------------------------------------------------


def test_an_exploration_from_the_command_line_to_the_bin(tmp_path: Path) -> None:
    table = tmp_path / "points.csv"
    done = run_command(tmp_path, "explore", "dlrm", "--vary", "multipliers=64,128,256", "--vary", "dn_bw=16,64,256",
                 "--batch", "4", "--csv", str(table), "--tag", "mine", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["target"] == "sim:dlrm-hybrid"
    assert document["points"] == len(document["columns"]["multipliers"]) == 9
    assert len(table.read_text().splitlines()) == 10
    listed = json.loads(run_command(tmp_path, "ls", "--json").stdout)
    assert [(run["workload"], run["target"], run["tags"]) for run in listed["runs"]] == [
        ("dlrm, batch 4", "sim:dlrm-hybrid", ["mine"])
    ]
    shown = run_command(tmp_path, "show", "mine")
    assert document["sentence"].split(":")[0] in shown.stdout
    page = run_command(tmp_path, "report", "mine", "-o", str(tmp_path / "page.html"))
    assert page.returncode == 0, page.stderr
    assert "Pareto front" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert run_command(tmp_path, "rm", "mine").stdout == "removed 1 run\n"
    wrong = run_command(tmp_path, "explore", "dlrm", "--vary", "multiplier=64")
    assert wrong.returncode == 2
    remedy = "did you mean 'multipliers'? Write: sonda explore dlrm --vary multipliers=64"
    assert wrong.stderr == f"sonda: setting 'multiplier' is unknown; {remedy}\n"
    assert wrong.stdout == ""
