"""Layers and costs of unmodified JAX programs: by named scopes and by source, in loops, on several devices."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from sonda.frameworks.collector.piece_pass import AFTER, CALLS
from sonda.frameworks.jax.profile.hlo import read_module
from sonda.frameworks.jax.profile.hlo_cost import executed_costs
from sonda.frameworks.jax.profile.places import program_places

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

from jax_layers_cases import PROGRAMS, Ran, steps  # noqa: E402
from observed import check_structure  # noqa: E402

BLOCKS, WIDTH, HEADS, WORDS, LENGTH, BATCH = 3, 32, 4, 50, 16, 4
"""As the program has them."""
BLOCK = {
    "blocks.attention": 2 * BATCH * LENGTH * WIDTH * 4 * WIDTH + 2 * 2 * BATCH * LENGTH**2 * WIDTH,
    "blocks.perceptron": 2 * BATCH * LENGTH * WIDTH * 8 * WIDTH,
}
"""FLOPs of the products in one block's forward, by hand: four projections and two of queries, keys and values; two."""
HEAD = 2 * BATCH * LENGTH * WIDTH * WORDS


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("layers") / "run", "jax_transformer.py")


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    place = tmp_path_factory.mktemp("devices")
    return {mode: Ran(place / mode, "jax_devices.py", mode) for mode in ("shared", "pmap")}


def test_named_scopes_are_layers_forward_and_backward(transformer: Ran) -> None:
    check_structure(transformer.spans)
    found = transformer.layers(pass_="pieces")
    for path in ("blocks.attention", "blocks.perceptron", "head"):
        assert {(path, "forward"), (path, "backward")} <= found, path
    # What is compared with the right words stands in no scope.
    assert {path for path, _ in found if ":" not in path} <= {*BLOCK, "blocks", "embed", "head", "Loss"}
    places = transformer.words("name", kind="layer", path="head")
    assert len(set(places)) == 1 and places[0].startswith("jax_transformer.py:")


def test_profiled_calls_are_steps_of_their_own(transformer: Ran) -> None:
    """One call is compiled, ten run before a profile, five are profiled, and the one behind it waited for it."""
    assert steps(transformer.spans, "train") == {
        "warmup": 2, "timed": 20 - 2 - CALLS, "pieces": CALLS, "count": 1,
    }  # fmt: skip
    assert steps(transformer.spans, "test") == {"warmup": 2, "timed": 18 - 2 - CALLS, "pieces": CALLS, "count": 1}
    assert AFTER + CALLS + 2 <= 18
    phases = Counter(transformer.words("name", kind="phase", pass_="timed"))
    assert phases == {"fused": 20 - 2 - CALLS, "forward": 18 - 2 - CALLS}
    assert not transformer.layers(pass_="timed")
    assert "rofiler" not in transformer.said, "the profiler's own lines are kept from stderr"


def test_layers_take_no_longer_than_their_step(transformer: Ran) -> None:
    spans = transformer.spans
    duration, parent = spans.number("duration"), spans.number("parent")
    rows = np.flatnonzero(spans.where(kind="step", pass_="pieces"))
    for row in rows:
        inside = duration[(parent == row) & spans.where(kind="phase")]
        assert 0 < inside.sum() <= duration[row]
    assert [note for note in transformer.notes if "under JAX's profiler, which tells" in note]
    assert [note for note in transformer.notes if note.startswith("what a loop (jax.lax.scan)")]


def test_flops_of_loops_count_as_often_as_they_run(transformer: Ran) -> None:
    """XLA's own count has the body of a loop once. A backward has two products for each of the forward."""
    found = transformer.counted("jax.dot")
    for path, flops in {**{path: BLOCKS * flops for path, flops in BLOCK.items()}, "head": HEAD}.items():
        assert found["backward", path] == 2 * flops, path
        # Training and evaluation each have a forward.
        assert found["forward", path] == 2 * flops, path
    forward = sum(BLOCKS * flops for flops in BLOCK.values()) + HEAD
    assert sum(found.values()) == 4 * forward
    assert set(transformer.assembly.flops) == {"float32"}
    assert transformer.assembly.flops["float32"] > 4 * forward


def test_layers_without_scopes_are_named_by_their_calls(devices: dict[str, Ran]) -> None:
    text = (PROGRAMS / "jax_devices.py").read_text().splitlines()
    line = {name: next(at for at, words in enumerate(text, 1) if name in words) for name in ("tanh", "square", "x @")}
    ran = devices["shared"]
    check_structure(ran.spans)
    found = ran.layers(pass_="pieces")
    for name in ("tanh", "square"):
        path = f"loss_of:{line[name]}.dense:{line['x @']}"
        assert {(path, "forward"), (path, "backward")} <= found
        assert set(ran.words("name", kind="layer", path=path)) == {f"jax_devices.py:{line['x @']}"}
    assert [note for note in ran.notes if note.startswith("layers without a jax.named_scope")]


@pytest.mark.parametrize("mode", ["shared", "pmap"])
def test_what_devices_exchange_is_a_phase_and_all_of_them_are_counted(devices: dict[str, Ran], mode: str) -> None:
    """Products of 48 rows in all, whichever device has them: forward, and the gradients of weights and of what is
    hidden."""
    ran = devices[mode]
    assert "communicate" in ran.words("name", kind="phase", pass_="pieces")
    first, second = 2 * 48 * 32 * 64, 2 * 48 * 64 * 8
    assert sum(ran.counted("jax.dot").values()) == 2 * first + 3 * second
    assert ran.notes[0].startswith("layers are those of the same compiled functions (step)")


# ---- texts of functions that are compiled here --------------------------------------------------------------------


def compiled(function: Any, *arguments: Any) -> Any:
    return jax.jit(function).lower(*arguments).compile()


def test_costs_agree_with_xla_where_nothing_loops() -> None:
    """XLA counts integers and comparisons as FLOPs, and a convolution without its padding."""
    images, kernel, weights = jnp.ones((2, 9, 9, 3)), jnp.ones((3, 3, 3, 8)), jnp.ones((4 * 4 * 8, 5))

    def loss(kernel: Any, weights: Any) -> Any:
        maps = jax.lax.conv_general_dilated(images, kernel, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.square(jnp.tanh(maps).reshape(2, -1) @ weights).sum()

    one = compiled(jax.grad(loss, argnums=(0, 1)), kernel, weights)
    costs = [cost for _, _, cost in executed_costs(read_module(one.as_text()))]
    products = sum(cost.flops or 0 for cost in costs if cost.operation in ("convolution", "dot"))
    convolution, dot = 2 * 2 * 16 * 8 * 27, 2 * 2 * 128 * 5
    # Forward and the gradient of the kernel; forward and two gradients.
    assert products == 2 * convolution + 3 * dot
    about = one.cost_analysis()
    assert sum(cost.flops or 0 for cost in costs) == pytest.approx(about["flops"], rel=0.05)
    assert sum(cost.bytes for cost in costs) == pytest.approx(about["bytes accessed"], rel=0.15)


def test_a_loop_of_unknown_length_and_branches() -> None:
    def until(x: Any) -> Any:
        return jax.lax.while_loop(lambda x: x.sum() > 0, lambda x: jnp.tanh(x @ x) - 1, x)

    module = read_module(compiled(until, jnp.ones((8, 8))).as_text())
    assert None in [times for _, times, _ in executed_costs(module)]

    def either(x: Any) -> Any:
        return jax.lax.cond(x[0, 0] > 0, lambda x: x @ x @ x, lambda x: jnp.sin(x), x)

    costs = [cost for _, _, cost in executed_costs(read_module(compiled(either, jnp.ones((8, 8))).as_text()))]
    # The longer branch.
    assert sum(cost.flops or 0 for cost in costs) == 2 * 2 * 8**3


def test_transformations_inside_one_another() -> None:
    """Gradients for each sample: `vmap` around `grad` around a jitted function, in another jitted function."""
    weights, x = {"first": jnp.ones((6, 8)), "second": jnp.ones((8, 4))}, jnp.ones((5, 6))

    @jax.jit
    def network(weights: Any, x: Any) -> Any:
        with jax.named_scope("hidden"):
            x = jnp.tanh(x @ weights["first"])
        with jax.named_scope("last"):
            return x @ weights["second"]

    def step(weights: Any, x: Any) -> Any:
        slopes = jax.vmap(jax.grad(lambda weights, x: network(weights, x).sum()), (None, 0))(weights, x)
        return jax.tree.map(lambda weight, slope: weight - 0.1 * slope.mean(0), weights, slopes)

    module = read_module(compiled(step, weights, x).as_text())
    places = program_places(module, "fused")
    found = {(place.phase, place.path) for place in places.by_name.values()}
    assert {("forward", "hidden"), ("backward", "hidden"), ("optimizer", "")} <= found
    assert {path for _, path in found if ":" not in path} <= {"", "hidden", "last"}
