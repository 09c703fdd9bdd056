"""FLOPs of a graph of TensorFlow, counted from its operations: against counts by hand and the network's own."""

from __future__ import annotations

from typing import Any

import pytest

from sonda.frameworks.collector.tensorflow_flops import UnknownShapeError, count_graph
from sonda.workloads.catalogue import describe
from sonda.workloads.network_cost import network_costs

tf = pytest.importorskip("tensorflow")
PRODUCTS = ("MatMul", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")


def flops(rows: list[list[Any]], *kinds: str) -> int:
    return sum(row[3] for row in rows if row[1] in kinds)


def test_rows_that_a_graph_does_not_know_are_those_of_a_call() -> None:
    """Rows of 6 x 12 through 12 x 16, folded into B · 6 rows, which the graph calls unknown: 2 · 5 · 6 · 12 · 16 for 5.

    Twice for the gradient of the weight and of the input; that of the input is asked for here.
    """
    weight = tf.Variable(tf.ones((12, 16)))

    @tf.function(input_signature=[tf.TensorSpec((None, 6, 12))])
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.tensordot(x, weight, 1))
        slope, into = tape.gradient(loss, [weight, x])
        weight.assign_sub(slope)
        return into

    graph = step.get_concrete_function().graph
    rows, unknown = count_graph(tf, graph, [tf.TensorShape((5, 6, 12))])
    assert flops(rows, "MatMul") == 3 * 2 * 5 * 6 * 12 * 16 and unknown == {}
    assert flops(rows, "AssignSubVariableOp") == 12 * 16
    with pytest.raises(UnknownShapeError):
        count_graph(tf, graph, [])


def test_what_is_made_and_never_run_costs_nothing() -> None:
    """Without a use for it, the gradient of the input is made and dropped."""
    weight = tf.Variable(tf.ones((4, 3)))

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(x @ weight))
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    rows, _ = count_graph(tf, step.get_concrete_function(tf.TensorSpec((2, 4))).graph, [])
    assert flops(rows, "MatMul") == 2 * (2 * 2 * 4 * 3)


def test_products_of_a_network_cost_what_its_formulas_say() -> None:
    """The CNN: formulas count products with their biases, one FLOP for each value; in the graph these are apart."""
    from sonda.workloads.in_tensorflow.network import build

    description = describe("cnn", {"batch": "2"})
    task = build(description, True, 5)
    inputs, targets = tf.TensorSpec((2, 32, 32, 3)), tf.TensorSpec((2,), tf.int64)
    rows, unknown = count_graph(tf, task.function().get_concrete_function(inputs, targets).graph, [])
    assert unknown == {}
    told = [cost for cost in network_costs(description, True, 4) if cost.class_name.startswith(("Conv2d", "Linear"))]
    expected = sum(cost.flops for cost in told if cost.phase in ("forward", "backward"))
    assert flops(rows, *PRODUCTS, "BiasAdd", "BiasAddGrad") == expected


def test_a_deep_network_costs_what_its_formulas_say() -> None:
    """All operations, batch norms and updates among them: formulas and graph differ in sums of loss and statistics."""
    from sonda.workloads.in_tensorflow.network import build

    description = describe("resnet18", {"batch": "2", "image": "32x32"})
    task = build(description, True, 5)
    inputs, targets = tf.TensorSpec((2, 32, 32, 3)), tf.TensorSpec((2,), tf.int64)
    rows, unknown = count_graph(tf, task.function().get_concrete_function(inputs, targets).graph, [])
    assert unknown == {}
    costs = network_costs(description, True, 4)
    assert sum(row[3] for row in rows) == pytest.approx(sum(cost.flops for cost in costs), rel=2e-3)
    assert sum(row[4] for row in rows) == pytest.approx(sum(cost.bytes for cost in costs), rel=0.05)


def test_a_loop_that_decides_what_is_run_is_said() -> None:
    @tf.function
    def step(x: Any) -> Any:
        return tf.while_loop(lambda value: tf.reduce_sum(value) < 9, lambda value: (value + 1,), (x,))

    with pytest.raises(UnknownShapeError, match="decides what is run"):
        count_graph(tf, step.get_concrete_function(tf.TensorSpec((2,))).graph, [])
