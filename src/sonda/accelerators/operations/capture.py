"""Capture: one step of a PyTorch model, seen operation by operation, while the model computes what it always does.

A dispatch mode sees what PyTorch is about to run, below every module and function. Fused operations run as they are,
so that the model's outputs stay what they are; the products inside them are written down from their operands. The one
exception is the path that runs a whole encoder layer as one operation: it is switched off meanwhile, which changes the
last digits of that layer.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sonda.accelerators.operations.products import FUSED, PRODUCTS, EngineProduct
from sonda.accelerators.operations.program import Call, ModelProgram, Operation
from sonda.record.errors import SondaError

Mark = Callable[[str], Any]
UNWORKED = frozenset(
    {"detach", "alias", "lift_fresh", "empty", "empty_like", "new_empty", "empty_strided", "_unsafe_view"}
)
"""Operations beside views that compute nothing."""

META = "meta tensor"
VALUES = "a sparse engine must know what is zero; build the model with values"
HIGHER_ORDER = re.compile(r"HigherOrderOperator (\w+)")
"""What PyTorch says where an operator takes functions, such as `torch.cond`, and a mode is to see inside it."""


@dataclass(frozen=True)
class Capture:
    """What was seen, and what the step returned."""

    program: ModelProgram
    output: Any


def capture(model: Any, step: Callable[[Mark], Any], patterns: frozenset[str] = frozenset()) -> Capture:
    """Run `step` once and write down its operations; `patterns` names the kinds whose zeros are wanted.

    `step` is handed a context manager that announces phases. Raises SondaError where a parameter or a buffer holds NaN,
    where an operand whose zeros are wanted holds NaN or has no values, where the model hides its operations, and where
    it has none or no element to compute; what the model itself raises is passed on.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    _refuse_nan(model)
    recorder = _Recorder(model, patterns)

    class Seeing(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Telling the compiler to keep out would load it, which takes longer than most captures.
            return "torch._dynamo" in sys.modules

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            name = function._schema.name.partition("::")[2].removesuffix("_")
            if name not in PRODUCTS and name not in FUSED:
                with self:
                    composed = function.decompose(*args, **kwargs)
                if composed is not NotImplemented:
                    return composed
            output = function(*args, **kwargs)
            recorder.record_operation(name, function, args, kwargs, output)
            return output

    try:
        with _whole_layers_apart(), recorder.watch_modules(), Seeing():
            output = step(recorder.phase)
    except NotImplementedError as error:
        if META in str(error):
            raise SondaError("the model cannot be captured: it asks for values of the meta device", VALUES) from None
        hidden = HIGHER_ORDER.search(str(error))
        if hidden is None:
            raise
        raise SondaError(
            f"the model cannot be captured: {hidden[1]} needs PyTorch's compiler, which hides operations",
            f"write it without {hidden[1]}",
        ) from None
    program = recorder.program()
    if not program.operations and recorder.empty:
        raise SondaError(
            f"the model cannot be captured: {recorder.empty[0]} has no elements",
            "give inputs with at least one sample, and layers with at least one output",
        )
    if not program.operations and not program.others:
        raise SondaError("the model cannot be captured: it runs no operation", "give a model that computes something")
    return Capture(program, output)


@contextmanager
def _whole_layers_apart() -> Iterator[None]:
    """The path that runs a whole encoder layer at once is off, and afterwards what it was."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class _Recorder:
    """Collects calls and operations of one step."""

    def __init__(self, model: Any, patterns: frozenset[str]) -> None:
        self.paths = {id(module): path for path, module in model.named_modules()}
        self.model = model
        self.patterns = patterns
        self.weights = {_storage(tensor) for tensor in (*model.parameters(), *model.buffers())}
        self.calls: list[Call] = []
        self.operations: list[Operation] = []
        self.phases: list[str] = []
        self.others: dict[tuple[int, str], int] = {}
        self.empty: list[str] = []
        """Operations that an engine would take if they had elements."""
        self.unusual = UnusualProducts()
        self.numbers: dict[str, int] = {}
        self.stack: list[int] = []
        self.current = "forward"

    @contextmanager
    def watch_modules(self) -> Iterator[None]:
        """While this lasts, calls of modules are noted."""
        from torch.nn.modules import module

        before = module.register_module_forward_pre_hook(self._enter)
        after = module.register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        outer, self.current = self.current, name
        try:
            yield
        finally:
            self.current = outer

    def _enter(self, module: Any, inputs: Any) -> None:
        caller = self.stack[-1] if self.stack else -1
        path = self.paths.get(id(module))
        name = type(module).__name__
        if path is None:
            # Made on the way or not listed: it is named by its class, inside whoever calls it.
            around = self.calls[caller].path if caller >= 0 else ""
            path = f"{around}.{name}" if around else name
        number = self.numbers.get(path, 0)
        self.numbers[path] = number + 1
        self.stack.append(len(self.calls))
        self.calls.append(Call(path, name, number, caller, len(self.operations), self.current))

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        self.stack.pop()

    def record_operation(self, name: str, function: Any, args: Any, kwargs: Any, output: Any) -> None:
        """Note one operation that has run."""
        caller = self.stack[-1] if self.stack else -1
        handler = PRODUCTS.get(name) or FUSED.get(name)
        if handler and any(argument.is_complex() for argument in args if hasattr(argument, "is_complex")):
            # Engines multiply real numbers: one such product would be several of theirs.
            handler, name = None, f"complex {name}"
        products: list[EngineProduct] | None = handler(self, function, args, kwargs, output) if handler else None
        tensors = [tensor for tensor in args if hasattr(tensor, "numel")]
        if (
            products is None
            and handler
            and any(not tensor.numel() for tensor in (*tensors, output) if hasattr(tensor, "numel"))
        ):
            operands = " by ".join("x".join(map(str, tensor.shape)) for tensor in tensors if tensor.dim() > 1)
            self.empty.append(f"{self._where(caller)}: {name} of {operands}")
        if products is None:
            if not function.is_view and name not in UNWORKED:
                key = (caller, name)
                self.others[key] = self.others.get(key, 0) + 1
                self.unusual.note_host_operation(function._schema.name)
            return
        for product in products:
            self._add(name, caller, product)

    def _add(self, name: str, caller: int, product: EngineProduct) -> None:
        kind = product.kind or self._kind(product, caller)
        self.unusual.note_operands(product.tensors)
        inputs = weights = None
        if kind in self.patterns and product.operands is not None:
            where = f"{self._where(caller)}: {name}"
            inputs, weights = (_pattern(operand, where) for operand in product.operands())
        self.operations.append(Operation(kind, name, caller, product.shape, inputs, weights))
        self.phases.append(self.current)

    def _where(self, caller: int) -> str:
        return (self.calls[caller].path if caller >= 0 else "") or "the model"

    def _kind(self, product: EngineProduct, caller: int) -> str:
        """A product with weights is `linear`, one in a module of attention `attention`, any other `gemm`."""
        module = self.calls[caller].name if caller >= 0 else ""
        if module in ("Linear", "NonDynamicallyQuantizableLinear") or any(
            _storage(tensor) in self.weights for tensor in product.tensors
        ):
            return "linear"
        return "attention" if "attention" in module.lower() else "gemm"

    def program(self) -> ModelProgram:
        return ModelProgram(
            tuple(self.calls), tuple(self.operations), tuple(self.phases), dict(self.others), self.unusual.notes()
        )


def _refuse_nan(model: Any) -> None:
    """Raise SondaError naming the first parameter or buffer with NaN: what such a model computes is not a number."""
    import torch

    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        values = tensor.detach()
        if torch.nn.parameter.is_lazy(tensor) or values.is_meta or not values.is_floating_point():
            continue
        if values.layout != torch.strided:
            values = values.coalesce().values() if values.layout == torch.sparse_coo else values.values()
        # The sum needs no memory of its own; it is no number also where infinities of both signs meet.
        if values.numel() and bool(torch.isnan(values.sum())) and bool(torch.isnan(values).any()):
            raise SondaError(f"{name} has NaN in it", "mend the weights")


def _storage(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return id(tensor)  # a sparse tensor has none


def _pattern(operand: Any, where: str) -> Any:
    import torch

    from sonda.accelerators.operations.program import ZeroPattern

    values = operand.detach()
    if values.is_meta:
        raise SondaError(f"{where} has an operand on the meta device, without values", VALUES)
    if values.layout != torch.strided:
        values = values.to_dense()
    if values.is_floating_point() and bool(torch.isnan(values).any()):
        raise SondaError(f"{where} has NaN in an operand", "a sparse engine must know what is zero; mend the inputs")
    return ZeroPattern.from_array((values != 0).cpu().numpy())


# ---- Products that are not what an engine takes them for: of other elements than float32, of sparse or --------------

USUAL = "float32"
HIDDEN = {
    "quantised": re.compile(r"quantized::(linear|conv|matmul|embedding_bag)|::(fbgemm|_wrapped).*(linear|conv)"),
    "sparse": re.compile(r"::_?(spmm|hspmm|sspaddmm|.*sparse.*(mm|linear|matmul|attention))"),
    "of whole numbers": re.compile(r"::(_int_mm|_weight_int\dpack_mm|_dyn_quant_matmul|_mixed_dtypes_linear)"),
    "scaled": re.compile(r"::_scaled(_grouped)?_mm"),
}
"""Products that no engine takes, by what they are; names as PyTorch writes them."""


class UnusualProducts:
    """Gathers them while a step is captured."""

    def __init__(self) -> None:
        self._elements: Counter[str] = Counter()
        self._sparse = 0
        self._hidden: Counter[tuple[str, str]] = Counter()

    def note_operands(self, tensors: Iterable[Any]) -> None:
        """Note the operands of a product that an engine takes."""
        operands = list(tensors)
        kinds = dict.fromkeys(str(operand.dtype).removeprefix("torch.") for operand in operands)
        if kinds and list(kinds) != [USUAL]:
            self._elements[" by ".join(kinds)] += 1
        self._sparse += any("strided" not in str(operand.layout) for operand in operands)

    def note_host_operation(self, schema: str) -> None:
        """Note an operation that no engine takes, such as `quantized::linear_dynamic`."""
        name = schema.removesuffix("_")
        for reason, pattern in HIDDEN.items():
            if pattern.search(name):
                self._hidden[reason, name.partition("::")[2]] += 1
                return

    def notes(self) -> tuple[str, ...]:
        """Sentences; none where all products are of float32."""
        sentences = []
        if self._elements:
            kinds = ", ".join(f"{kind} ({count:,})" for kind, count in self._elements.most_common())
            sentences.append(f"products of {kinds}, simulated as float32")
        if self._sparse:
            sentences.append(
                f"products with a sparse tensor ({self._sparse:,}), simulated as dense: zeros are left out only by an "
                "engine that looks for them"
            )
        if self._hidden:
            names = ", ".join(f"{name} {count} ({reason})" for (reason, name), count in self._hidden.most_common())
            sentences.append(f"products on the host, in no cycle: {names}")
        return tuple(sentences)
