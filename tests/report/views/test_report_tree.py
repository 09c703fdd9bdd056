"""The layer tree folds without losing a layer or a nanosecond."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import report_examples as examples
from sonda.analysis.summary import LayerRow
from sonda.report.views.steps.layer_tree import MAIN, fold


def layers(paths: dict[str, float]) -> tuple[LayerRow, ...]:
    """Layers by path and own ns."""
    return tuple(examples.layer(path, "Layer", own, 0.0, own, 1.0, 1.0, 1e9) for path, own in paths.items())


@st.composite
def trees(draw: st.DrawFn) -> dict[str, float]:
    """Paths of a random tree, with gaps: a parent may be missing."""
    paths = draw(st.lists(st.lists(st.sampled_from("abcde"), max_size=5).map(".".join), unique=True, max_size=60))
    return {path: float(draw(st.integers(0, 1000))) for path in paths}


@given(trees(), st.integers(4, 40))
def test_every_layer_is_in_exactly_one_view_and_no_view_is_too_large(paths: dict[str, float], limit: int) -> None:
    views = fold(layers(paths), limit)
    found = [node.row.path for nodes in views.values() for node in nodes if node.row is not None]
    assert sorted(found) == sorted(paths)
    for nodes in views.values():
        assert len(nodes) <= limit
        seen = {""}
        for node in nodes:
            assert node.parent in seen
            seen.add(node.id)
        assert len(seen) == len(nodes) + 1


@given(trees(), st.integers(4, 40))
def test_a_folded_node_is_worth_what_its_view_holds(paths: dict[str, float], limit: int) -> None:
    views = fold(layers(paths), limit)
    assert sum(node.own for node in views[MAIN]) == sum(paths.values())
    for nodes in views.values():
        for node in nodes:
            if node.view:
                assert node.own == sum(inner.own for inner in views[node.view])


def test_the_slowest_layers_stay_in_the_main_view() -> None:
    paths = {"": 0.0} | {f"l{index}": float(index) for index in range(5000)}
    views = fold(layers(paths), 2000)
    kept = [node.row.path for node in views[MAIN] if node.row is not None]
    assert kept == ["", *(f"l{index}" for index in range(5000 - 998, 5000))]
    folded = views[MAIN][-1]
    assert folded.label == "4,002 smaller layers"
    assert folded.own == sum(range(5000 - 998))


def test_labels_are_relative_to_the_nearest_layer_above() -> None:
    views = fold(layers({"": 1.0, "block": 1.0, "block.0.conv": 1.0}))
    assert [node.label for node in views[MAIN]] == ["(Layer)", "block", "0.conv"]
    assert [node.depth for node in views[MAIN]] == [0, 1, 2]


def test_no_layers_give_an_empty_view() -> None:
    assert fold(()) == {MAIN: ()}
