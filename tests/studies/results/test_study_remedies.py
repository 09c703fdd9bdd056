"""What a study says to try: it follows from figures that repetitions tell from noise, and from nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from sonda.analysis.comparison.findings import OptionsBring
from sonda.analysis.comparison.optimisations import Option, Options
from sonda.analysis.comparison.repetitions import best_of
from sonda.analysis.summary import Value
from sonda.record.store import Store
from sonda.report.screen import render
from sonda.report.section import section_of
from sonda.report.views.study.screen import study_blocks
from sonda.report.views.study.view import StudyView
from sonda.report.words import describe, word_findings
from sonda.studies.catalogue import show_study
from sonda.studies.engine.plan import configurations
from sonda.studies.file.loader import load_study
from sonda.studies.file.study import VARIANT, Study
from sonda.studies.results.remedies import remedies
from sonda.studies.results.table import StudyCell, StudyRow, StudyTable

Figures = dict[str, list[float]]


def study_of(folder: Path, text: str) -> Study:
    (folder / "mine.toml").write_text(text, encoding="utf-8")
    return load_study(str(folder / "mine.toml"))


def cell(key: str, values: list[float], low: float | None = None, high: float | None = None) -> StudyCell:
    middle = sorted(values)[len(values) // 2] if values else None
    return StudyCell(key, Value(middle, "", "measured", low, high), len(values), values=tuple(values))


def table_of(study: Study, figures: list[Figures], disturbed: int = 0) -> StudyTable:
    """The study's rows with these figures, in the order of its configurations."""
    axes = (VARIANT, *study.axes) if study.variants else tuple(study.axes)
    rows = tuple(
        StudyRow({key: one[key] for key in axes}, (), tuple(cell(*pair) for pair in of.items()), (), disturbed)
        for one, of in zip(configurations(study), figures, strict=True)
    )
    return StudyTable(study.name, "", "", axes, dict(study.workload), (), (), (), rows, (), (), study.base)


def worded_remedies(study: Study, table: StudyTable, options: list[Options], summaries: dict[str, Any]) -> list[str]:
    return list(map(describe, remedies(study, table, options, summaries)))


BATCHES = """
[study]
name = "batches"
question = "Which batch?"
repeat = 3
[workload]
train = true
[axes]
workload = ["mlp", "cnn"]
batch = [8, 16]
"""


def test_a_batch_is_advised_where_repetitions_tell_it_from_the_others_with_what_it_costs(tmp_path: Path) -> None:
    study = study_of(tmp_path, BATCHES)
    # By hand: 300/200 = 1.5 and 100/50 = 2 times the samples a second; 150/100 = 1.5 times the memory in both.
    table = table_of(study, [
        {"samples_per_second": [200.0, 201.0, 199.0], "peak_memory_MB": [100.0]},
        {"samples_per_second": [300.0, 301.0, 299.0], "peak_memory_MB": [150.0]},
        {"samples_per_second": [50.0, 50.1, 49.9], "peak_memory_MB": [100.0]},
        {"samples_per_second": [100.0, 100.1, 99.9], "peak_memory_MB": [150.0]},
    ])  # fmt: skip
    assert worded_remedies(study, table, [], {}) == [
        'take "batch 16" instead of "batch 8": 1.50 to 2.00 times as fast, 1.50 times the memory'
    ]


def test_what_noise_hides_is_to_be_repeated_and_one_run_is_never_enough(tmp_path: Path) -> None:
    study = study_of(tmp_path, BATCHES)
    wide = [{"samples_per_second": one} for one in ([200.0, 100.0, 300.0], [300.0, 150.0, 450.0]) * 2]
    assert worded_remedies(study, table_of(study, wide), [], {}) == [
        "measure again with --repeat 12: intervals become half as wide"
    ]
    once = [{"samples_per_second": [value]} for value in (1.0, 100.0, 1.0, 100.0)]
    assert worded_remedies(study, table_of(study, once, disturbed=1), [], {}) == [
        "measure again with --repeat 3 while no other program runs: one run of each cannot be told from noise"
    ]
    assert worded_remedies(study, table_of(study, [{}] * 4), [], {}) == [], "nothing measured: nothing follows"


SIMULATED = """
[study]
name = "simulated"
question = "Which machine?"
[workload]
name = "dlrm"
[axes]
"""


def test_a_larger_batch_and_another_host_are_other_work(tmp_path: Path) -> None:
    """A step of fewer samples takes fewer cycles, and so does one whose bags are left to the host."""
    figures: list[Figures] = [{"cycles": [61.0], "energy_uJ": [2.0]}, {"cycles": [119.0], "energy_uJ": [6.0]}]
    batches = study_of(tmp_path, f'{SIMULATED}on = ["sim:tpu-16x16"]\nbatch = [1, 4]\n')
    assert worded_remedies(batches, table_of(batches, figures), [], {}) == []
    machines = study_of(tmp_path, f'{SIMULATED}on = ["sim:tpu-16x16", "sim:dlrm-hybrid"]\n')
    table = table_of(machines, figures)
    # By hand: 119/61 = 1.95, 2/6 = 0.33.
    said = 'take "sim:tpu-16x16" instead of "sim:dlrm-hybrid": 1.95 times as fast, 0.33 times the energy'
    assert worded_remedies(machines, table, [], {}) == [said]
    rows = (dataclasses.replace(table.rows[0], on_host="embedding_bag"), table.rows[1])
    assert worded_remedies(machines, dataclasses.replace(table, rows=rows), [], {}) == []


def test_energy_of_runs_that_did_more_is_not_compared(tmp_path: Path) -> None:
    study = study_of(tmp_path, BATCHES.replace('["mlp", "cnn"]', '["mlp"]'))
    figures = [{"samples_per_second": [speed, speed + 1, speed - 1], "energy_J": [joules]}
               for speed, joules in ((200.0, 10.0), (300.0, 15.0))]  # fmt: skip
    (said,) = worded_remedies(study, table_of(study, figures), [], {})
    assert said.startswith('take "batch 16" instead of "batch 8": 1.50 (') and "energy" not in said


OPTIONS = """
[study]
name = "options"
question = "What do they bring?"
base = "base"
repeat = 3
[workload]
train = true
[axes]
workload = ["cnn", "mlp"]
[variant.base]
[variant.cache]
cache = true
[variant.compile]
compile = true
"""


def option(name: str, value: float, low: float, high: float, effect: str) -> Option:
    return Option(name, Value(value, "1", "derived", low, high), effect)


def brought(place: str, *options: Option) -> Options:
    return Options(place, "base", options, OptionsBring(()))


def test_options_are_taken_left_out_or_the_base_is_kept(tmp_path: Path) -> None:
    study = study_of(tmp_path, OPTIONS)
    table = table_of(study, [{}] * 6)
    gain = brought("cnn", option("cache", 1.7, 1.5, 1.93, "faster"), option("compile", 1.2, 1.1, 1.3, "faster"))
    loss = brought("mlp", option("cache", 0.5, 0.4, 0.6, "slower"), option("compile", 0.99, 0.97, 1.02, "nothing"))
    assert worded_remedies(study, table, [gain, loss], {}) == [
        'take "cache" instead of "base" with cnn: 1.70 (1.50 to 1.93) times as fast',
        'stay with "base" with mlp: none of 2 others is faster',
    ]
    unsure = brought("mlp", option("cache", 0.5, 0.4, 0.6, "slower"), option("compile", 1.3, 0.7, 2.4, "unknown"))
    assert worded_remedies(study, table, [unsure], {}) == ['leave out "cache": 2.00x slower']


def test_a_faster_way_that_surely_loses_accuracy_says_so_and_the_next_one_is_said_too(tmp_path: Path) -> None:
    study = study_of(tmp_path, OPTIONS)
    of_cnn = ([80.0, 80.1, 79.9], [74.0, 74.1, 73.9], [80.0, 80.1, 79.9])
    right: list[Figures] = [{"accuracy_percent": of} for one in of_cnn for of in (one, [0.0])]
    gains = brought("cnn", option("cache", 1.9, 1.8, 2.0, "faster"), option("compile", 1.5, 1.4, 1.6, "faster"))
    assert worded_remedies(study, table_of(study, right), [gains], {}) == [
        'take "cache" instead of "base": 1.90 (1.80 to 2.00) times as fast, 74 % of the test right instead of 80 %',
        'take "compile" instead of "base": 1.50 (1.40 to 1.60) times as fast',
    ]


def test_a_neighbour_that_slows_less_is_advised_where_the_rounds_tell_them_apart(tmp_path: Path) -> None:
    study = study_of(tmp_path, '[study]\nname = "beside"\nquestion = "?"\n[axes]\nworkload = ["mlp"]\n'
                               'with = ["cnn", "stress-cache"]\n')  # fmt: skip
    table = table_of(study, [{}, {}])

    def beside(*ends: tuple[float, float, float]) -> list[str]:
        rows = tuple(
            dataclasses.replace(row, cells=(cell("slowdown", [value], low, high),))
            for row, (value, low, high) in zip(table.rows, ends, strict=True)
        )
        return worded_remedies(study, dataclasses.replace(table, rows=rows), [], {})

    assert beside((1.05, 1.01, 1.1), (2.1, 1.9, 2.3)) == [
        'run mlp beside "cnn" rather than "stress-cache": a step takes 1.05 instead of 2.10 times as long as alone'
    ]
    assert beside((1.05, 1.01, 2.0), (2.1, 1.9, 2.3)) == []


def test_the_best_of_what_is_simulated_needs_no_repetition_and_of_what_is_measured_does() -> None:
    assert best_of({"a": [300.0], "b": [100.0]}, "a") is None
    found = best_of({"a": [300.0], "b": [100.0]}, "a", exact=True)
    assert found is not None and (found.best, found.other, found.times.value) == ("b", "a", 3.0)
    assert best_of({"a": [100.0], "b": [100.0]}, "a", exact=True) is None
    usual = best_of({"a": [1.0], "b": [2.0], "c": [3.0]}, "a", exact=True)
    assert usual is not None and (usual.best, usual.other, usual.times.value) == ("a", "b", 2.0), "the next best"
    assert best_of({"a": [], "b": [1.0]}, "a", exact=True) is None


def test_terminal_and_page_say_the_same_and_nothing_where_nothing_follows(tmp_path: Path) -> None:
    document: dict[str, Any] = word_findings(show_study("network-zoo", "small", None, Store(tmp_path)))
    assert document["remedies"] == []
    assert (
        "Try:" not in render(study_blocks(document, 100), 100)
        and "What to try" not in section_of(StudyView(document)).html
    )
    document["remedies"] = ['take "<b>" instead of "a": 2.00 times as fast']
    assert 'Try: take "<b>" instead of "a": 2.00 times as fast.' in render(study_blocks(document, 100), 100)
    html = section_of(StudyView(document)).html
    assert "What to try" in html and "Take &quot;&lt;b&gt;&quot; instead of" in html


@pytest.mark.parametrize("name", ["mapping", "num-indices-per-lookup-fixed"])
def test_another_work_is_no_better_way(name: str, tmp_path: Path) -> None:
    changes = {"mapping": '"best"', "num-indices-per-lookup-fixed": "true"}[name]
    head = '[study]\nname = "ways"\nquestion = "?"\n[workload]\nname = "dlrm"\non = "sim:dlrm-hybrid"\n'
    study = study_of(tmp_path, f"{head}[variant.usual]\n[variant.other]\n{name} = {changes}\n")
    said = worded_remedies(study, table_of(study, [{"cycles": [300.0]}, {"cycles": [100.0]}]), [], {})
    assert said == (['take "other" instead of "usual": 3.00 times as fast'] if name == "mapping" else [])
