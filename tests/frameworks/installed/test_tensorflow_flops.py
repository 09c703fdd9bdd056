"""FLOPs of a graph of TensorFlow, counted from its operations: against counts by hand and the network's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sonda.frameworks.tensorflow.observe.flops import UnknownShapeError, count_graph
from sonda.workloads.catalogue import describe
from sonda.workloads.networks.cost import network_costs

tf = pytest.importorskip("tensorflow")
PRODUCTS = ("MatMul", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")


def flops(rows: list[list[Any]], *kinds: str) -> int:
    return sum(row[3] for row in rows if row[1] in kinds)


def moved(rows: list[list[Any]], *kinds: str) -> int:
    return sum(row[4] for row in rows if row[1] in kinds)


def unknown(rows: list[list[Any]]) -> set[str]:
    return {row[1] for row in rows if row[3] is None or row[4] is None}


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
    rows = count_graph(tf, graph, [tf.TensorShape((5, 6, 12))])
    assert flops(rows, "MatMul") == 3 * 2 * 5 * 6 * 12 * 16 and unknown(rows) == set()
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

    rows = count_graph(tf, step.get_concrete_function(tf.TensorSpec((2, 4))).graph, [])
    assert flops(rows, "MatMul") == 2 * (2 * 2 * 4 * 3)


def test_products_of_a_network_cost_what_its_formulas_say() -> None:
    """The CNN: formulas count products with their biases, one FLOP for each value; in the graph these are apart."""
    from sonda.workloads.in_tensorflow.network import build

    description = describe("cnn", {"batch": "2"})
    task = build(description, True, 5)
    inputs, targets = tf.TensorSpec((2, 32, 32, 3)), tf.TensorSpec((2,), tf.int64)
    rows = count_graph(tf, task.function().get_concrete_function(inputs, targets).graph, [])
    assert unknown(rows) == set()
    told = [cost for cost in network_costs(description, True, 4) if cost.class_name.startswith(("Conv2d", "Linear"))]
    expected = sum(cost.flops for cost in told if cost.phase in ("forward", "backward"))
    assert flops(rows, *PRODUCTS, "BiasAdd", "BiasAddGrad") == expected


def test_a_deep_network_costs_what_its_formulas_say() -> None:
    """All operations, batch norms among them: formulas and graph differ in sums of loss and statistics.

    Updates move more than their formula, which is of one operation: rate x slope reads and writes (2), and what is
    taken off reads it and reads and writes the weight (3), 4 bytes each.
    """
    from sonda.workloads.in_tensorflow.network import build

    description = describe("resnet18", {"batch": "2", "image": "32x32"})
    task = build(description, True, 5)
    inputs, targets = tf.TensorSpec((2, 32, 32, 3)), tf.TensorSpec((2,), tf.int64)
    rows = count_graph(tf, task.function().get_concrete_function(inputs, targets).graph, [])
    assert unknown(rows) == set()
    costs = network_costs(description, True, 4)
    assert sum(row[3] for row in rows) == pytest.approx(sum(cost.flops for cost in costs), rel=2e-3)
    weights = sum(int(np.prod(one.shape)) for one in task.trained.values())
    updates = [row for row in rows if "optimizer" in row[0].split("/")]
    assert sum(row[4] for row in updates) == pytest.approx(5 * 4 * weights, rel=1e-4), "and the rate, a number each"
    others = sum(cost.bytes for cost in costs if cost.phase != "optimizer")
    assert sum(row[4] for row in rows if row not in updates) == pytest.approx(others, rel=0.05)


def test_a_sum_of_products_by_letters_costs_two_for_all_of_them() -> None:
    """Attention: scores and values of 3 heads; letters under dots; one operand is summed up, or turned only."""

    @tf.function
    def looked(first: Any, second: Any) -> Any:
        scores = tf.einsum("blhd,bmhd->bhlm", first, second)
        return (
            tf.einsum("bhlm,bmhd->blhd", scores, second), tf.einsum("...d,de->...e", first, tf.ones((8, 2))),
            tf.einsum("blhd->bh", first), tf.einsum("blhd->bdhl", first),
        )  # fmt: skip

    graph = looked.get_concrete_function(tf.TensorSpec((None, 5, 3, 8)), tf.TensorSpec((None, 6, 3, 8))).graph
    shapes = [tf.TensorShape((4, 5, 3, 8)), tf.TensorShape((4, 6, 3, 8))]
    rows = count_graph(tf, graph, shapes)
    assert flops(rows, "Einsum") == 2 * 2 * (4 * 5 * 6 * 3 * 8) + 2 * (4 * 5 * 3 * 8 * 2) + 4 * 5 * 3 * 8
    assert unknown(rows) == set()
    with pytest.raises(UnknownShapeError):
        count_graph(tf, graph, [])


def test_a_lookup_reads_what_it_finds_and_an_update_its_variable_too() -> None:
    """32 of 1000 rows of 64 float32: read and written, and 32 numbers of rows of 4 bytes.

    Adam has three variables for each weight, and every update reads a value, and reads and writes its variable."""
    keras = tf.keras
    table, head = keras.layers.Embedding(1000, 64), keras.layers.Dense(8)
    table.build()
    head.build((None, 64))
    adam = keras.optimizers.Adam(0.1)
    adam.build(head.trainable_variables)

    @tf.function
    def step(numbers: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(head(table(numbers)[:16]))
        adam.apply(tape.gradient(loss, head.trainable_variables), head.trainable_variables)
        return loss

    rows = count_graph(tf, step.get_concrete_function(tf.TensorSpec((32,), tf.int32)).graph, [])
    assert moved(rows, "GatherV2", "ResourceGather") == 2 * 32 * 64 * 4 + 32 * 4
    assert moved(rows, "StridedSlice") == 2 * 16 * 64 * 4
    weights = 64 * 8 + 8
    assert moved(rows, "AssignAddVariableOp", "AssignSubVariableOp") == 3 * 3 * weights * 4
    assert flops(rows, "AssignAddVariableOp", "AssignSubVariableOp") == 3 * weights


def test_of_branches_the_dearest_counts() -> None:
    """As Keras does with float16: weights change only where no slope has overflown."""
    weight = tf.Variable(tf.ones((12, 16)))

    @tf.function
    def step(x: Any, slope: Any) -> Any:
        tf.cond(tf.reduce_all(tf.math.is_finite(slope)), lambda: weight.assign_sub(slope), lambda: weight + 0.0)
        return tf.switch_case(tf.cast(x[0, 0], tf.int32), [lambda: x @ weight, lambda: tf.zeros((5, 16))])

    rows = count_graph(tf, step.get_concrete_function(tf.TensorSpec((5, 12)), tf.TensorSpec((12, 16))).graph, [])
    assert flops(rows, "MatMul") == 2 * 5 * 12 * 16
    assert flops(rows, "AssignSubVariableOp", "AddV2") == 12 * 16, "one of both"


def test_what_has_no_formula_has_a_row_without_flops() -> None:
    @tf.function
    def step(x: Any) -> Any:
        return tf.linalg.inv(x @ x)

    rows = count_graph(tf, step.get_concrete_function(tf.TensorSpec((3, 3))).graph, [])
    assert [row[1:] for row in rows if row[1] == "MatrixInverse"] == [["MatrixInverse", "float32", None, 2 * 9 * 4]]
    assert flops(rows, "MatMul") == 2 * 27


def test_a_loop_that_decides_what_is_run_is_said() -> None:
    @tf.function
    def step(x: Any) -> Any:
        return tf.while_loop(lambda value: tf.reduce_sum(value) < 9, lambda value: (value + 1,), (x,))

    with pytest.raises(UnknownShapeError, match="decides what is run"):
        count_graph(tf, step.get_concrete_function(tf.TensorSpec((2,))).graph, [])


@pytest.mark.parametrize(
    ("make", "kind", "each", "variables"),
    [
        (lambda v1: v1.GradientDescentOptimizer(0.1), "GradientDescent", 2, 1),
        (lambda v1: v1.MomentumOptimizer(0.1, 0.9), "Momentum", 2 + 2, 2),
        (lambda v1: v1.MomentumOptimizer(0.1, 0.9, use_nesterov=True), "Momentum", 2 + 4, 2),
        (lambda v1: v1.AdagradOptimizer(0.1), "Adagrad", 2 + 5, 2),
        (lambda v1: v1.AdamOptimizer(0.1), "Adam", 3 + 4 + 5, 3),
        (lambda v1: v1.RMSPropOptimizer(0.1), "RMSProp", 4 + 7 + 1, 3),
        (lambda v1: v1.AdadeltaOptimizer(0.1), "Adadelta", 4 + 7 + 2 + 4, 3),
    ],
)
def test_an_optimizer_that_is_one_operation_counts_for_each_weight(
    make: Any, kind: str, each: int, variables: int
) -> None:
    """4 x 3 weights; every variable is read and written, and the gradient read; numbers such as the rate beside it."""
    weight = tf.Variable(tf.ones((4, 3)))
    optimizer = make(tf.compat.v1.train)

    @tf.function
    def step(slope: Any) -> None:
        optimizer.apply_gradients([(slope, weight)])

    rows = count_graph(tf, step.get_concrete_function(tf.TensorSpec((4, 3))).graph, [])
    assert flops(rows, f"ResourceApply{kind}") == 12 * each
    assert 0 <= moved(rows, f"ResourceApply{kind}") - 4 * 12 * (1 + 2 * variables) <= 4 * 6
    assert unknown(rows) == set()
