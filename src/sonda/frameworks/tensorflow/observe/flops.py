"""What a graph of TensorFlow costs: FLOPs and bytes of its operations, by the conventions of all other counts.

A graph that takes any number of rows does not know its shapes. It is copied into a graph that is never run, with the
shapes of a call, and TensorFlow infers all other shapes. Operations are those of the graph as it was traced: what
TensorFlow fuses later reads and writes less. Multiply-add is 2; +, −, ×, ÷, exp, log, tanh, sqrt are 1 for each element
of a floating type; comparisons and copies 0. Of the branches of a condition the costliest counts.
"""

from __future__ import annotations

import math
from typing import Any

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
LOOPS = ("While", "StatelessWhile")
"""How often these run is known only when they run."""
BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
ELEMENTS = {
    **dict.fromkeys((
        "Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "MulNoNan", "Neg", "Exp", "Expm1", "Log", "Log1p",
        "Tanh", "Sqrt", "Square", "Reciprocal", "Inv", "Pow", "Erf", "BiasAdd", "Sin", "Cos", "LeakyRelu",
        "LeakyReluGrad", "Elu", "EluGrad", "AssignAddVariableOp", "AssignSubVariableOp",
    ), 1),
    "SquaredDifference": 2, "Rsqrt": 2,
    "SqrtGrad": 2,  # g / 2 / y
    "RsqrtGrad": 4,  # g y y y / -2
    "TanhGrad": 3, "SigmoidGrad": 3,  # g (1 - y y); g (1 - y) y
    "Sigmoid": 4,  # 1 / (1 + exp(-x))
    "Softplus": 2, "SoftplusGrad": 4,  # log1p(exp(x)); g / (1 + exp(-x))
    "Softmax": 4, "LogSoftmax": 4,  # x - max, exp, sum, and / or - log
    "SparseSoftmaxCrossEntropyWithLogits": 5,  # softmax, and - target for the gradient
    "SoftmaxCrossEntropyWithLogits": 8,  # the same, and log, × target, sum for the loss
    "FusedBatchNormGradV3": 9,  # as everywhere: two sums (4), and the gradient of the input (5)
}  # fmt: skip
"""FLOPs for each element of the largest tensor of an operation."""
PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D", "Conv3D", "Conv2DBackpropInput",
            "Conv2DBackpropFilter", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2", "DepthwiseConv2dNative",
            "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter", "Einsum")  # fmt: skip
"""Operations without whose shapes nothing is counted."""
SUMS = ("Sum", "Mean", "BiasAddGrad", "L2Loss", "AddN", "AvgPool", "AvgPoolGrad", "Cumsum", "Prod",
        "UnsortedSegmentSum", "ResourceScatterAdd", "ResourceScatterSub")  # fmt: skip
"""Operations with one FLOP for each element of all inputs together."""
REDUCTIONS = ("Sum", "Mean", "Prod", "Max", "Min")
"""Operations over axes, which are another input."""
NO_COST = ("Const", "Placeholder", "VarHandleOp", "ReadVariableOp", "Identity", "IdentityN", "NoOp", "Shape", "ShapeN",
        "Reshape", "ExpandDims", "Squeeze", "Size", "Rank", "StopGradient",
        "PreventGradient", "BroadcastGradientArgs", "IteratorGetNext", "OptionalFromValue", "Range",
        "Bitcast")  # fmt: skip
"""Operations that compute and move nothing of weight."""
NO_FLOPS = ("Relu", "ReluGrad", "Relu6", "Relu6Grad", "MaxPool", "Transpose", "Cast",
          "Tile", "Fill", "ConcatV2", "Split", "Slice", "StridedSlice", "StridedSliceGrad", "Pack", "Unpack", "Pad",
          "PadV2", "Maximum", "Minimum", "Max", "Min", "ArgMax",
          "Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "LogicalNot",
          "Select", "SelectV2", "Gather", "GatherV2", "ResourceGather", "OneHot", "ZerosLike", "OnesLike",
          "BroadcastTo", "Abs", "Sign", "AssignVariableOp", "MirrorPad", "Where", "IsFinite", "All", "Any",
          "RandomUniform", "RandomStandardNormal", "StatelessRandomUniformV2", "StatelessRandomNormalV2",
          "ResourceScatterUpdate")  # fmt: skip
"""Operations that move, compare or draw values."""
LOOKUPS = ("Gather", "GatherV2", "ResourceGather")
SLICES = ("Slice", "StridedSlice")
"""Both read as much as they write; lookups read their indices too."""
UPDATES = {
    "AssignVariableOp": 1, "AssignAddVariableOp": 2, "AssignSubVariableOp": 2, "ResourceScatterUpdate": 1,
    "ResourceScatterAdd": 2, "ResourceScatterSub": 2,
}  # fmt: skip
"""How often an update touches the values of its variable: written, or read too. A resource itself has no shape."""
OPTIMIZERS = {
    "ResourceApplyGradientDescent": (2, 1),  # w - rate g
    "ResourceApplyMomentum": (4, 2), "ResourceApplyKerasMomentum": (4, 2),  # a = m a + g; w - rate a
    "ResourceApplyAdagrad": (7, 2), "ResourceApplyAdagradV2": (7, 2),  # a + g g; w - rate g / (sqrt(a) + e)
    "ResourceApplyAdam": (12, 3),  # m + (g - m) c; v + (g g - v) d; w - rate m / (sqrt(v) + e)
    "ResourceApplyAdaMax": (8, 3),  # m + (g - m) c; max(d v, |g|); w - rate m / (v + e)
    "ResourceApplyRMSProp": (12, 3),  # s + (g g - s) c; a = m a + rate g / sqrt(s + e); w - a
    "ResourceApplyAdadelta": (17, 3),  # a r + g g c; u = sqrt(d + e) / sqrt(a + e) g; w - rate u; d r + u u c
}  # fmt: skip
"""Of optimizers that are one operation: FLOPs for each weight, and variables that are read and written. As the kernels
of TensorFlow compute them (`core/kernels/training_ops.cc`); 1 / sqrt counts 2."""
NESTEROV = {"ResourceApplyMomentum": 2, "ResourceApplyKerasMomentum": 2, "ResourceApplyAdam": 3}
"""Additional FLOPs for each weight with Nesterov momentum: w - rate (g + m a); (g c + b m) in place of m."""


class UnknownShapeError(Exception):
    """The shapes of a graph do not follow from those of a call, or a loop inside decides what runs."""


def count_graph(tf: Any, graph: Any, shapes: list, batch: int = 0) -> list:
    """Costs of a graph: rows of scope, kind, type, FLOPs and bytes; None for an unknown number.

    `shapes` are those of the graph's first inputs, `batch` the rows of a batch that it fetches itself (0: unknown).
    Raises UnknownShapeError.
    """
    rows: dict = {}
    _add_costs(tf, graph, shapes, batch, "", rows)
    return [[*key[:3], *row] for key, row in rows.items()]


def _add_costs(tf: Any, graph: Any, shapes: list, batch: int, prefix: str, rows: dict) -> None:
    copy = _with_shapes(tf, graph, shapes, batch)
    for op in _needed_operations(copy, graph):
        if op.type in LOOPS:
            raise UnknownShapeError(f"a loop inside ({op.type}) decides what is run")
        inside = f"{prefix}{op.name}/"
        if op.type in CALLS:
            inner = graph._functions[op.get_attr("f").name].graph
            _add_costs(tf, inner, [tensor.shape for tensor in op.inputs], 0, inside, rows)
            continue
        if op.type in BRANCHES:
            _add_rows(rows, _costliest_branch(tf, graph, op, inside))
            continue
        floating = [tensor.dtype for tensor in _tensors(op) if tensor.dtype.is_floating]
        if op.type in NO_COST or not floating:
            continue
        flops = moved = None
        try:
            moved = _bytes(op)
            flops = _flops(op)
        except UnknownShapeError:
            if op.type in PRODUCTS:
                raise
        scope = f"{prefix}{op.name}".rpartition("/")[0]
        _add_rows(rows, {(scope, op.type, floating[0].name, flops is None, moved is None): [flops, moved]})


def _add_rows(rows: dict, more: dict) -> None:
    """Add rows to others of the same key; known and unknown numbers have different keys."""
    for key, new in more.items():
        earlier = rows.get(key)
        rows[key] = (
            [b if a is None or b is None else a + b for a, b in zip(earlier, new, strict=True)] if earlier else new
        )


def _costliest_branch(tf: Any, graph: Any, op: Any, prefix: str) -> dict:
    """Rows of the branch with the most FLOPs."""
    if op.type.endswith("Case"):
        names = [branch.name for branch in op.get_attr("branches")]
    else:
        names = [op.get_attr("then_branch").name, op.get_attr("else_branch").name]
    by_branch = []
    for name in names:
        rows: dict = {}
        _add_costs(tf, graph._functions[name].graph, [tensor.shape for tensor in op.inputs[1:]], 0, prefix, rows)
        by_branch.append(rows)
    return max(by_branch, key=lambda rows: sum(flops or 0 for flops, _ in rows.values()))


def _needed_operations(copy: Any, graph: Any) -> list:
    """Operations that results depend on: a gradient of the first layer's input is in the graph too, but never runs."""
    wanted = [*(tensor.op.name for tensor in graph.outputs), *(op.name for op in graph.control_outputs)]
    by_name = {op.name: op for op in copy.get_operations()}
    pending = [by_name[name] for name in wanted if name in by_name]
    pending += [op for op in by_name.values() if op.op_def.is_stateful]
    needed: dict = {}
    while pending:
        op = pending.pop()
        if op.name not in needed:
            needed[op.name] = op
            pending += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return [op for name, op in by_name.items() if name in needed]


def _tensors(op: Any) -> list:
    """Inputs and outputs of an operation, without those whose shapes are unknown.

    These are values that a batch norm keeps for its gradient, and the axes of a sum in a gradient.
    """
    if op.type.startswith("FusedBatchNorm"):
        return [*op.inputs[:5], *op.outputs[:3]]
    if op.type in REDUCTIONS:
        return [op.inputs[0], *op.outputs]
    return [*op.inputs, *op.outputs]


def _with_shapes(tf: Any, graph: Any, shapes: list, batch: int) -> Any:
    """A copy of the graph with the shapes of a call."""
    from tensorflow.python.ops import handle_data_util

    definition = graph.as_graph_def()
    for node in definition.node:
        if node.op == "IteratorGetNext" and batch:
            for shape in node.attr["output_shapes"].list.shape:
                if shape.dim and shape.dim[0].size < 0:
                    shape.dim[0].size = batch
    copy = tf.Graph()
    with copy.as_default():
        input_map = {}
        for position, tensor in enumerate(graph.inputs):
            data = handle_data_util.get_resource_handle_data(tensor) if tensor.dtype == tf.resource else None
            if data is not None and data.is_set and len(data.shape_and_type) == 1:
                described = data.shape_and_type[0]
                replacement = tf.raw_ops.VarHandleOp(dtype=described.dtype, shape=tf.TensorShape(described.shape))
            else:
                shape = shapes[position] if position < len(shapes) else tensor.shape
                replacement = tf.compat.v1.placeholder(tensor.dtype, shape)
            input_map[tensor.name] = replacement
        tf.import_graph_def(definition, input_map=input_map, name="")
    return copy


def _elements(tensor: Any) -> int:
    """The number of elements of a tensor; 0 for a resource."""
    if tensor.dtype.name in ("resource", "variant"):
        return 0
    count = tensor.shape.num_elements()
    if count is None:
        raise UnknownShapeError("shapes inside the graph are known only when it runs")
    return int(count)


def _bytes(op: Any) -> int:
    """Bytes that an operation reads and writes."""
    if op.type in LOOKUPS or op.type in SLICES:
        touched = [op.outputs[0], op.outputs[0], *(op.inputs[1:2] if op.type in LOOKUPS else ())]
        return sum(_elements(tensor) * tensor.dtype.size for tensor in touched)
    moved = sum(
        _elements(tensor) * tensor.dtype.size for tensor in {tensor.name: tensor for tensor in _tensors(op)}.values()
    )
    if op.type in OPTIMIZERS:
        return moved + 2 * OPTIMIZERS[op.type][1] * _gradient_size(op)[1]
    if op.type in UPDATES:
        values = op.inputs[2 if op.type.startswith("Resource") else 1]
        moved += UPDATES[op.type] * _elements(values) * values.dtype.size
    return moved


def _gradient_size(op: Any) -> tuple:
    """Elements and bytes of the gradient that an optimizer takes: the largest of its inputs beside variables."""
    return max((_elements(tensor), _elements(tensor) * tensor.dtype.size) for tensor in op.inputs)


def _flops(op: Any) -> int | None:
    """FLOPs of an operation; None where they are unknown."""
    kind = op.type
    if kind in OPTIMIZERS:
        more = NESTEROV[kind] if kind in NESTEROV and op.get_attr("use_nesterov") else 0
        return (OPTIMIZERS[kind][0] + more) * int(_gradient_size(op)[0])
    if kind in NO_FLOPS:
        return 0
    if kind == "Sum" and _elements(op.inputs[0]) == _elements(op.outputs[0]):
        return 0  # over no axis
    if kind in SUMS:
        return sum(_elements(tensor) for tensor in op.inputs if tensor.dtype.is_floating)
    if kind in ELEMENTS:
        return ELEMENTS[kind] * max(_elements(tensor) for tensor in _tensors(op) if tensor.dtype.is_floating)
    if kind == "FusedBatchNormV3":
        # y = x a + b, and in training mean and variance before it.
        return (6 if op.get_attr("is_training") else 2) * _elements(op.inputs[0])
    if kind == "MaxPoolGrad":
        return _elements(op.inputs[2])
    if kind == "MatMul":
        first = op.inputs[0].shape
        return 2 * _elements(op.outputs[0]) * int(first[0 if op.get_attr("transpose_a") else 1])
    if kind in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
        first = op.inputs[0].shape
        return 2 * _elements(op.outputs[0]) * int(first[-2 if op.get_attr("adj_x") else -1])
    if kind == "Einsum":
        return _einsum_flops(op)
    if kind in ("Conv2D", "Conv3D"):
        return _convolution_flops(op.outputs[0], op.inputs[1])
    if kind == "DepthwiseConv2dNative":
        height, width = op.inputs[1].shape[:2]
        return 2 * _elements(op.outputs[0]) * int(height) * int(width)
    if kind in ("Conv2DBackpropInput", "Conv3DBackpropInputV2"):
        return _convolution_flops(op.inputs[2], op.inputs[1])
    if kind in ("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"):
        return _convolution_flops(op.inputs[2], op.outputs[0])
    if kind == "DepthwiseConv2dNativeBackpropInput":
        height, width = op.inputs[1].shape[:2]
        return 2 * _elements(op.inputs[2]) * int(height) * int(width)
    if kind == "DepthwiseConv2dNativeBackpropFilter":
        height, width = op.outputs[0].shape[:2]
        return 2 * _elements(op.inputs[2]) * int(height) * int(width)
    return None


def _convolution_flops(output: Any, kernel: Any) -> int:
    """FLOPs of a convolution: two for each value of the kernel that goes into a value of the forward's output."""
    return 2 * _elements(output) * _elements(kernel) // int(kernel.shape[-1])


def _einsum_flops(op: Any) -> int:
    """FLOPs of an einsum: two for every combination of all letters. With one operand 1 if it sums, else 0."""
    operands, _, result = op.get_attr("equation").decode().replace(" ", "").partition("->")
    sizes: dict = {}
    for labels, tensor in zip(operands.split(","), op.inputs, strict=True):
        if tensor.shape.rank is None:
            raise UnknownShapeError("shapes inside the graph are known only when it runs")
        before, dots, after = labels.partition("...")
        ellipsis = tensor.shape.rank - len(before) - len(after)
        # Letters under three dots are broadcast from the right.
        names = [*before, *(range(-ellipsis, 0) if dots else ()), *after]
        for name, size in zip(names, tensor.shape.as_list(), strict=True):
            if size is None:
                raise UnknownShapeError("shapes inside the graph are known only when it runs")
            sizes[name] = max(size, sizes.get(name, 0))
    combinations = math.prod(sizes.values())
    if len(op.inputs) > 1:
        return 2 * combinations
    return combinations if any(isinstance(name, str) and name not in result for name in sizes) else 0
