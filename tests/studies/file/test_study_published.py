"""The studies that come with Sonda."""

from __future__ import annotations

import pytest

from sonda.studies.engine.plan import configurations, plan_points
from sonda.studies.file.loader import load_study, published_studies
from sonda.studies.file.study import Published, Study, matches


def rows(study: Study, **where: object) -> list[Published]:
    return [row for row in study.published if row.where == where]


@pytest.mark.parametrize("name", published_studies())
def test_every_published_study_loads_and_plans_at_every_scale(name: str) -> None:
    study = load_study(name)
    assert study.name == name
    assert study.question
    for one in (study, *map(study.at_scale, study.scales)):
        points = plan_points(one)
        assert len({point.identity for point in points}) == len(points) > 0
    assert "small" in study.scales
    assert len(plan_points(study.at_scale("small"))) < len(plan_points(study))


@pytest.mark.parametrize("name", published_studies())
def test_every_published_figure_has_a_source_and_a_point(name: str) -> None:
    study = load_study(name)
    points = configurations(study)
    for row in study.published:
        assert row.source.startswith(study.source)
        assert len(row.source) > len(study.source) > 20
        assert any(matches(row.where, point) for point in points)


def test_six_operations_has_the_configurations_of_its_tables() -> None:
    study = load_study("six-operations")
    sizes: dict[object, dict[object, list[object]]] = {}
    for one in configurations(study):
        assert (one["workload"], one["inner"]) == ("ops", 512)
        sizes.setdefault(one["variant"], {}).setdefault(one["op"], []).append(one["size"])
    pointwise = [f"{2**power}MiB" for power in range(1, 11)]
    published = {
        "add": ["6MiB", "12MiB", "24MiB", "48MiB", "96MiB"],
        "mul": ["6MiB", "12MiB", "24MiB", "48MiB", "96MiB"],
        "dot": ["5MiB", "9MiB", "17MiB", "33MiB", "65MiB"],
        "scalar": pointwise,
        "sigmoid": pointwise,
        "tanh": pointwise,
    }
    beyond = {"add": ["3072MiB"], "mul": ["3072MiB"], "dot": ["513MiB"]}
    on_gpu = {op: [*of, *beyond.get(op, [])] for op, of in published.items()}
    assert sizes == {
        "PyTorch, CPU": published, "JAX, CPU": published, "TensorFlow, CPU": published, "PyTensor, CPU": published,
        "PyTorch, GPU": on_gpu, "JAX, GPU": on_gpu, "TensorFlow, GPU": on_gpu,
    }  # fmt: skip


def test_six_operations_in_turn_fill_one_process() -> None:
    points = configurations(load_study("six-operations").at_scale("together"))
    assert len(points) == 12 and {one["framework"] for one in points if "framework" in one} == {"jax"}
    assert {one["op"] for one in points} == {"add,mul,dot,scalar,sigmoid,tanh"}
    assert {(one["on"], one["probe"]) for one in points} == {("cuda:0", "ncu:stalls")}


def test_six_operations_holds_the_whole_tables() -> None:
    study = load_study("six-operations")
    # Table 2 has 5 sizes of 3 operations, table 3 has 10 sizes of 3, each on 3 cards.
    assert len(study.published) == 5 * 3 * 3 + 10 * 3 * 3
    for one in configurations(study):
        found = rows(study, op=one["op"], size=one["size"])
        if one["size"] in ("513MiB", "3072MiB"):
            assert found == [] and one["on"] == "cuda:0"
            continue
        assert [row.hardware for row in found] == ["GT710M", "K40", "GTX980"]
        assert all(set(row.figures) == {"mflops", "efficiency_percent"} for row in found)


@pytest.mark.parametrize(
    ("op", "size", "figures"),
    [
        # As the publication's tables and text print them: MFlop/s and % on GT710M, K40, GTX980.
        ("dot", "65MiB", [(120861.45, 80.10), (1652063.72, 38.43), (3869462.63, 86.94)]),
        ("dot", "5MiB", [(133021.16, 88.97), (1527464.91, 34.89), (3533837.89, 77.97)]),
        ("add", "96MiB", [(941.58, 0.63), (10726.58, 0.25), (12842.37, 0.26)]),
        ("mul", "24MiB", [(945.05, 0.61), (10752.33, 0.24), (12695.52, 0.27)]),
        ("scalar", "4MiB", [(1448.31, 0.95), (12453.40, 0.27), (20722.85, 0.30)]),
        ("sigmoid", "1024MiB", [(17635.59, 11.51), (95429.36, 2.20), (165118.47, 3.27)]),
        ("tanh", "256MiB", [(14293.97, 9.36), (83487.01, 1.93), (121751.89, 2.58)]),
    ],
)
def test_six_operations_prints_what_was_printed(op: str, size: str, figures: list[tuple[float, float]]) -> None:
    found = rows(load_study("six-operations"), op=op, size=size)
    assert [(row.figures["mflops"], row.figures["efficiency_percent"]) for row in found] == figures


def test_batch_and_resolution_are_those_of_the_sweep() -> None:
    study = load_study("resnet34-batch-resolution")
    found = [(one["image"], one["batch"]) for one in configurations(study)]
    assert found == [("295x222", batch) for batch in (72, 96, 128)] + [
        ("148x112", batch) for batch in (72, 96, 128, 160, 192, 256)
    ]
    assert all(one["train"] is True and one["channels"] == 1 and one["classes"] == 9 for one in configurations(study))


def test_the_zoo_holds_every_built_in_network_both_ways() -> None:
    from sonda.workloads.catalogue import BUILT_IN

    networks = [name for name in BUILT_IN if name != "ops" and not name.startswith("stress-")]
    found = {(one["workload"], one["train"]) for one in configurations(load_study("network-zoo"))}
    assert found == {(name, train) for name in networks for train in (False, True)}
