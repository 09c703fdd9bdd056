"""Products that are not what an engine takes them for: of other elements than float32, of sparse or quantised tensors.

An engine counts elements, whatever these are: how large they are is its description's to say, not the model's. A
product that PyTorch hides in an operation of its own, as those of quantised tensors, stays on the host.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

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

    def taken(self, tensors: Iterable[Any]) -> None:
        """Note the operands of a product that an engine takes."""
        operands = list(tensors)
        kinds = dict.fromkeys(str(one.dtype).removeprefix("torch.") for one in operands)
        if kinds and list(kinds) != [USUAL]:
            self._elements[" by ".join(kinds)] += 1
        self._sparse += any("strided" not in str(one.layout) for one in operands)

    def left(self, schema: str) -> None:
        """Note an operation that no engine takes, such as `quantized::linear_dynamic`."""
        name = schema.removesuffix("_")
        for what, pattern in HIDDEN.items():
            if pattern.search(name):
                self._hidden[what, name.partition("::")[2]] += 1
                return

    def notes(self) -> tuple[str, ...]:
        """Sentences; none where all products are of float32."""
        found = []
        if self._elements:
            kinds = ", ".join(f"{kind} ({count:,})" for kind, count in self._elements.most_common())
            found.append(f"products of {kinds}, simulated as float32")
        if self._sparse:
            found.append(
                f"products with a sparse tensor ({self._sparse:,}), simulated as dense: zeros are left out only by an "
                "engine that looks for them"
            )
        if self._hidden:
            names = ", ".join(f"{name} {count} ({what})" for (what, name), count in self._hidden.most_common())
            found.append(f"products on the host, in no cycle: {names}")
        return tuple(found)
