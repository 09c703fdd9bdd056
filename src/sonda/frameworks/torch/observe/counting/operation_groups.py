"""Adds up the operations of one counted step by where and of what kind they are."""

from __future__ import annotations

from typing import Any

from ..inspection.code_places import CodePlaces
from ..inspection.denormals import SubnormalOperations
from ..inspection.formats import TRIED, ImageFormats
from ..values import tensors_in
from .call_costs import CallKind, CallSequence

MOST_GROUPS = 400
"""Groups that are stated: those that took longest."""
COPIES = frozenset({"aten.clone", "aten.copy_", "aten._to_copy", "aten.copy", "aten.lift_fresh_copy"})
ASKING = frozenset({
    "aten._local_scalar_dense", "aten.is_nonzero", "aten.equal", "aten.nonzero", "aten.masked_select",
    "aten._unique", "aten._unique2", "aten.unique_dim", "aten.unique_consecutive", "aten.repeat_interleave",
    "aten.bincount", "aten.histc",
})  # fmt: skip
"""Operations whose result, or its size, the host has to know: on a GPU it waits for them."""
INDEXING = frozenset({"aten.index", "aten.index_put_", "aten.index_put"})
"""Operations for which a GPU is asked how many elements a mask selects."""
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "attention", "matmul", "linear", "mkldnn", "rnn", "lstm")
"""Parts of the names of operations that multiply matrices."""
POINTWISE = frozenset(
    f"aten.{name}"
    for name in (
        "threshold_backward", "gelu_backward", "sigmoid_backward", "tanh_backward", "silu_backward", "elu_backward",
        "leaky_relu_backward", "hardtanh_backward", "hardswish_backward", "hardsigmoid_backward", "softplus_backward",
        "mish_backward", "native_dropout", "native_dropout_backward", "bernoulli_", "fill_", "zero_",
        "relu_", "relu", "gelu", "silu", "add_", "mul_", "div_", "sub_", "masked_fill",
        "masked_fill_", "addcmul_", "addcdiv_", "lerp_",
    )
)  # fmt: skip
"""Operations on each element alone that PyTorch does not mark as such."""


CREATIONS = frozenset(
    f"aten.{name}"
    for name in (
        "zeros", "ones", "full", "empty", "empty_strided", "empty_like", "zeros_like", "ones_like", "full_like",
        "new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided", "rand", "randn", "rand_like",
        "randn_like", "eye", "arange",
    )
)  # fmt: skip
"""Operations that ask for new memory by name; others make their result of their operands."""
GATHERS = frozenset({"aten.index", "aten.index_select", "aten.gather"})
"""Operations that choose elements along dimensions, which their second argument names."""
MAPPED = 32 * 2**20
"""B from which on the C library takes a block from the system, and gives it back when it is freed."""
CACHE_LINE = 64
OWN_CACHE = 1 << 21
"""Bytes from which on a tensor does not fit into a core's own cache: a smaller one is read as fast in any order."""


class OperationGroups:
    """Operations of one phase, layer, line, family and precision are a group."""

    def __init__(self, torch: Any, places: CodePlaces) -> None:
        self._torch = torch
        self._places = places
        self._groups: dict[tuple, list] = {}
        self.sequence = CallSequence()
        self.subnormal = SubnormalOperations(torch)
        self.formats = ImageFormats(torch)
        self.random: set = set()
        """Codes of the layers in which random numbers were drawn."""

    def add_foretold(self, stream: Any, func: Any, ns: int) -> CallKind | None:
        """Add an operation that ran for so many ns, if those before it foretell its kind; None where `add` must."""
        phase = stream.phases[-1][0] >> 1 if stream.phases else -1
        layer = stream.layers[-1] if stream.layers else stream.backward
        place = self.sequence.foretell(func, phase, layer)
        if place is None:
            return None
        self._sum(stream, place.kind, place.group, ns)
        return place.kind

    def add(self, stream: Any, kind: CallKind, call: tuple, ns: int) -> None:
        """Add an operation of this kind that ran for so many ns; `call`: the function, its arguments and its result."""
        func, args, _, _ = call
        phase = stream.phases[-1][0] >> 1 if stream.phases else -1
        layer = stream.layers[-1] if stream.layers else stream.backward
        place = phase, layer >> 1 if layer else -1, self._places.find()
        self.subnormal.look(place, kind, call, ns)
        if kind.name in TRIED:
            self.formats.look(place, kind.name, func, args, ns)
        group = self._groups.setdefault((*place, kind.family, kind.bits), [0, 0, 0, 0, 0, 0])
        self.sequence.note(func, kind, group)
        self._sum(stream, kind, group, ns)

    def _sum(self, stream: Any, kind: CallKind, group: list, ns: int) -> None:
        if kind.random:
            self.random.update(stream.layers)
        group[0] += kind.operations
        group[1] += ns
        group[2] += kind.flops or 0
        group[3] += kind.bytes or 0
        group[4] += kind.strided
        group[5] += kind.mapped

    def facts(self) -> list:
        """The groups, those that took longest first: phase, layer, line, family, bits of a number; then how many, ns,
        FLOPs, bytes, bytes of operands that lie in memory with gaps or in another order, and bytes of results in memory
        that the C library takes from the system for them alone."""
        ordered = sorted(self._groups.items(), key=lambda item: -item[1][1])
        return [[*key, *sums] for key, sums in ordered[:MOST_GROUPS]]


def describe_group(torch: Any, func: Any, name: str, args: tuple, tensors: list, size: int | None) -> tuple:
    """What decides to which group a call belongs: its family, and the bits of its numbers; then the bytes of operands
    that lie in memory with gaps or in another order, and whether it draws random numbers."""
    family, random = _family_of(torch, func, name)
    family = _find_crossing(torch, name, family, tensors) or family
    bits, strided = 0, 0
    # Views move nothing, and libraries multiply transposed matrices as fast as others.
    spread = bool(size) and (family != "product" or "convolution" in name)
    for tensor in tensors:
        if not bits and tensor.is_floating_point():
            bits = 8 * tensor.element_size()
        if spread and tensor.dim() > 1 and not _is_dense(torch, tensor):
            strided += tensor.numel() * tensor.element_size()
    if spread and not strided and name in GATHERS and _is_scattered(args):
        strided = int(size or 0)
    return family, bits, strided, random


def count_time_steps(name: str, args: tuple) -> int:
    """How many operations a call stands for: of a recurrent layer that is one call, one for each time step."""
    return int(args[0].shape[0]) if name.startswith("aten.mkldnn_rnn_layer") and args[0].dim() == 3 else 1


def add_mapped(torch: Any, given: Any, out: Any) -> int:
    """B of results in memory of their own that the C library takes from the system for each, and gives back."""
    try:
        known = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(torch, given)}
        results = [tensor.untyped_storage() for tensor in tensors_in(torch, out) if tensor.device.type == "cpu"]
        return sum({
            storage.data_ptr(): storage.nbytes() for storage in results
            if storage.nbytes() >= MAPPED and storage.data_ptr() not in known
        }.values())  # fmt: skip
    except Exception:  # tensors without memory of their own
        return 0


def _family_of(torch: Any, func: Any, name: str) -> tuple[str, bool]:
    tag = torch.Tag
    try:
        tags = func.tags
    except Exception:  # no operation of the dispatcher
        tags = ()
    random = tag.nondeterministic_seeded in tags
    if name in COPIES:
        return "copy", False
    if name in CREATIONS:
        return "creation", random
    if any(part in name for part in PRODUCTS):
        return "product", random
    if name in POINTWISE or tag.pointwise in tags:
        return "pointwise", random
    if name.startswith(("aten._fused_", "aten._foreach_")):
        return "update", random
    return "other", random


def _find_crossing(torch: Any, name: str, family: str, tensors: list) -> str:
    """`ask` where the host waits for a GPU's answer, `to_device` and `to_host` of copies between the two; else ''."""
    devices = {tensor.device.type for tensor in tensors}
    if not devices - {"cpu", "meta"}:
        return ""
    if name in ASKING or (name in INDEXING and any(tensor.dtype is torch.bool for tensor in tensors[1:])):
        return "ask"
    if family == "copy" and "cpu" in devices and len(devices) > 1:
        # Of a copy the destination comes first where it is given, and last where it is made.
        first = tensors[0].device.type if name == "aten.copy_" else tensors[-1].device.type
        return "to_host" if first == "cpu" else "to_device"
    return ""


def _is_scattered(args: tuple) -> bool:
    """Whether a gather reads pieces of memory that are shorter than a cache line: it chooses along a dimension whose
    elements lie beside each other."""
    source, where = args[0], args[1] if len(args) > 1 else None
    if source.dim() < 2 or source.numel() * source.element_size() < OWN_CACHE:
        return False
    if isinstance(where, (list, tuple)):
        chosen = [at for at, index in enumerate(where) if index is not None]
    else:
        chosen = [where] if isinstance(where, int) else []
    return bool(chosen) and all(source.stride(at) * source.element_size() < CACHE_LINE for at in chosen)


def _is_dense(torch: Any, tensor: Any) -> bool:
    """Whether a tensor's elements follow each other in memory in the order of its dimensions, or channels last."""
    try:
        if tensor.is_contiguous():
            return True
        last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
        return last is not None and bool(tensor.is_contiguous(memory_format=last))
    except Exception:  # nested and sparse tensors
        return True
