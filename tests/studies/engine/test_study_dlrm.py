"""The study of DLRM on a hybrid accelerator: its figures against hand counts and what others found."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

from sonda.analysis.run_summary import summarise
from sonda.record.store import Store
from sonda.report.words import in_words
from sonda.studies.engine.measurement import measuring
from sonda.studies.engine.plan import plan_points
from sonda.studies.engine.runner import run_study
from sonda.studies.file.loader import load_study
from sonda.studies.file.study import Study
from sonda.studies.results.table import StudyTable, study_table

NAMES = ("as published", "full bags")
INDICES = {
    # Indices of a batch, up to N and exactly N drawn, as DLRM's own data class gives them (commit 090956e, seed 123).
    "5-1M-20-100": (5_466, 10_000),
    "5-1M-80-100": (18_931, 39_997),
    "5-1M-2-100": (452, 1_000),
    "10-1M-20-100": (10_317, 20_000),
    "25-1M-20-100": (24_641, 49_999),
    "50-1M-20-100": (49_401, 99_998),
    "10-1M-80-100": (39_000, 79_995),
    "25-1M-80-100": (97_785, 199_989),
    "50-1M-80-100": (198_241, 399_979),
    "50-10M-20-100": (49_404, 100_000),
    "50-10M-80-100": (198_250, 399_997),
    "50-10M-20-1000": (514_758, 999_944),
    "50-10M-80-1000": (2_026_469, 3_999_785),
}
COLUMNS = 32


def of_variants(study: Study, *names: str) -> Study:
    return dataclasses.replace(study, variants={name: study.variants[name] for name in names})


def carried_out(study: Study, root: Path) -> StudyTable:
    store = Store(root)
    return study_table(run_study(study, store, measuring(store), lambda state: None), summarise)


Figures = dict[tuple[str, str], dict[str, float]]


def figures(table: StudyTable) -> Figures:
    return {
        (str(row.configuration["variant"]), str(row.configuration["preset"])): {
            cell.figure: cell.value.value for cell in row.cells if cell.value.value is not None
        }
        for row in table.rows
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> StudyTable:
    """The 13 workloads with bags up to 100 or 1000 and exactly that full; simulated once, in a few seconds."""
    return carried_out(of_variants(load_study("dlrm-accelerator"), *NAMES), tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def found(table: StudyTable) -> Figures:
    return figures(table)


def perceptrons(preset: str) -> tuple[list[int], list[int]]:
    """Widths of the bottom and the top one, the top one's input computed by hand: d + F(F-1)/2 with F = tables + 1."""
    tables = int(preset.split("-")[0])
    inside = COLUMNS + (tables + 1) * tables // 2
    if preset == "5-1M-2-100":
        return [512, 256, 32], [inside, 256, 256, 128, 128, 64, 64, 1]
    return [128, 64, 64, 32], [inside, 128, 64, 1]


def samples(preset: str) -> int:
    return int(preset.split("-")[2])


def test_all_thirteen_workloads_are_there(found: Figures) -> None:
    assert set(found) == {(name, preset) for name in NAMES for preset in INDICES}


@pytest.mark.parametrize(
    ("preset", "percent"),
    [
        # Computed beforehand with the timing rules and DLRM's index streams, by another program.
        ("5-1M-20-100", 37.5),
        ("5-1M-80-100", 35.2),
        ("10-1M-20-100", 49.1),
        ("25-1M-20-100", 53.3),
        ("50-1M-20-100", 45.3),
        ("50-1M-80-100", 46.3),
        ("50-10M-20-1000", 89.5),
        ("50-10M-80-1000", 89.7),
    ],
)
def test_embeddings_share_of_the_cycles(found: Figures, preset: str, percent: float) -> None:
    assert found["as published", preset]["share_percent@embeddings"] == pytest.approx(percent, abs=0.05)


def test_totals_of_the_largest_runs(found: Figures) -> None:
    assert found["as published", "50-1M-80-100"]["cycles"] == pytest.approx(7.2e6, abs=0.05e6)
    assert found["as published", "50-10M-80-1000"]["reads"] == pytest.approx(74.7e6, abs=0.05e6)
    assert found["as published", "50-10M-80-1000"]["writes"] == 156_240


@pytest.mark.parametrize("preset", INDICES)
def test_components_add_up(found: Figures, preset: str) -> None:
    one = found["as published", preset]
    for figure in ("cycles", "reads", "writes"):
        assert one[figure] == sum(one[f"{figure}@{path}"] for path in ("bottom", "embeddings", "top"))
    assert one["share_percent@embeddings"] == pytest.approx(100 * one["cycles@embeddings"] / one["cycles"])


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("preset", INDICES)
def test_writes_are_outputs_however_many_indices_there_are(found: Figures, variant: str, preset: str) -> None:
    bottom, top = perceptrons(preset)
    one = found[variant, preset]
    assert one["writes@bottom"] == samples(preset) * sum(bottom[1:])
    assert one["writes@top"] == samples(preset) * sum(top[1:])
    assert one["writes@embeddings"] == samples(preset) * COLUMNS * int(preset.split("-")[0])


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("preset", INDICES)
def test_reads_of_embeddings_are_indices_and_their_rows(found: Figures, variant: str, preset: str) -> None:
    indices = INDICES[preset][NAMES.index(variant)]
    assert found[variant, preset]["reads@embeddings"] == indices * (1 + COLUMNS)


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("preset", INDICES)
def test_reads_of_the_bottom_perceptron_follow_from_samples_and_sizes(
    found: Figures, variant: str, preset: str
) -> None:
    # The tile takes two outputs at a time: weights are read once, inputs once for every two outputs and sample.
    widths, _ = perceptrons(preset)
    weights = sum(inputs * outputs for inputs, outputs in itertools.pairwise(widths))
    assert found[variant, preset]["reads@bottom"] == weights + weights // 2 * samples(preset)


def test_published_figures_stand_beside_ours_and_misses_are_named(table: StudyTable) -> None:
    printed: dict[str, Any] = {}
    for row in table.rows:
        for cell in row.cells:
            for one in cell.published:
                assert row.configuration["variant"] == "as published"
                key = (row.configuration["preset"], cell.figure, one.hardware.partition(", ")[2])
                printed[key] = one.value.value or (one.value.low, one.value.high)
    share = "share_percent@embeddings"
    assert printed["5-1M-20-100", share, "thesis"] == (35, 40)
    assert printed["25-1M-20-100", share, "thesis"] == (40, 45)
    assert printed["50-1M-80-100", share, "annexed article"] == (35, 40)
    assert [printed[name, share, "thesis"] for name in list(INDICES)[-4:]] == [46, 47, 89, 87]
    assert printed["50-10M-80-1000", "reads", "thesis"] == 74e6
    assert printed["50-10M-80-1000", "writes", "thesis"] == 284_000
    assert "25-1M-20-100 53.3" in next(note for note in in_words(table.notes) if "40 to 45 % (STONNE, thesis)" in note)
    said = " ".join(table.deviations)
    for word in ("284,240", "100-1M-20-100", "SIGMA", "the notes say so", "cut to a layer's sizes"):
        assert word in said


def test_points_are_simulated_once_and_found_again(table: StudyTable, tmp_path: Path) -> None:
    study = dataclasses.replace(load_study("dlrm-accelerator").at_scale("small"), repeat=5)
    assert len(plan_points(study)) == 4 * 4, "four variants of four workloads, whatever the repetitions"
    few = dataclasses.replace(of_variants(study, "as published"), axes={"preset": ("5-1M-2-100",)})
    store = Store(tmp_path)
    assert run_study(few, store, measuring(store), lambda state: None).measured == 1
    assert run_study(few, store, measuring(store), lambda state: None).measured == 0
    (row,) = [one for one in table.rows if one.configuration == {"variant": "full bags", "preset": "5-1M-2-100"}]
    cell = row.cells[0]
    assert (cell.n, cell.value.low, cell.value.high, cell.value.reason) == (1, None, None, "")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    """Every variant, of the smallest workload."""
    study = load_study("dlrm-accelerator")
    axes: dict[str, tuple[Any, ...]] = {"preset": ("5-1M-20-100",)}
    variants = {name: {k: v for k, v in one.items() if k != "preset"} for name, one in study.variants.items()}
    few = dataclasses.replace(study, axes=axes, variants=variants)
    return figures(carried_out(few, tmp_path_factory.mktemp("others")))


def test_a_searched_mapping_is_never_worse(others: Figures) -> None:
    cycles = {variant: one["cycles"] for (variant, _), one in others.items()}
    assert cycles["best mapping"] <= min(cycles["STONNE's tiles"], cycles["as published"])
    assert cycles["best, 1 MiB, DDR4"] <= cycles["1 MiB, DDR4"]


def test_memory_behind_the_buffer_only_adds(others: Figures) -> None:
    base = others["as published", "5-1M-20-100"]
    assert "memory_cycles" not in base and "dram_MB" not in base
    for variant in ("1 MiB, HBM2", "1 MiB, DDR4", "64 KiB, DDR4"):
        one = others[variant, "5-1M-20-100"]
        assert one["cycles"] == base["cycles"] + one["memory_cycles"]
        # Every row that is looked up crosses at least once: 5,466 indices, nearly all of them to different rows.
        assert one["dram_MB"] > 0.99 * 5_466 * COLUMNS * 4 / 1e6
        assert one["energy_uJ"] > base["energy_uJ"]
    assert others["64 KiB, DDR4", "5-1M-20-100"]["dram_MB"] >= others["1 MiB, DDR4", "5-1M-20-100"]["dram_MB"]
    assert others["1 MiB, HBM2", "5-1M-20-100"]["cycles"] <= others["1 MiB, DDR4", "5-1M-20-100"]["cycles"]


def test_other_engines_replace_one_component_each(others: Figures) -> None:
    base = others["as published", "5-1M-20-100"]
    mesh, bitmap = others["TPU", "5-1M-20-100"], others["SIGMA", "5-1M-20-100"]
    assert mesh["cycles@embeddings"] == base["cycles@embeddings"]
    assert mesh["cycles@bottom"] != base["cycles@bottom"] and mesh["cycles@top"] != base["cycles@top"]
    assert (bitmap["cycles@bottom"], bitmap["cycles@top"]) == (base["cycles@bottom"], base["cycles@top"])
    assert bitmap["cycles@embeddings"] < base["cycles@embeddings"]
