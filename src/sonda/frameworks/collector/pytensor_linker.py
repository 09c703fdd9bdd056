"""Which of PyTensor's linkers made a function, in the word that PyTensor's own settings have for it."""

from __future__ import annotations

from typing import Any

WORDS = {
    "NumbaLinker": "numba", "JAXLinker": "jax", "PytorchLinker": "pytorch", "MLXLinker": "mlx", "PerformLinker": "py",
    "CLinker": "c", "OpWiseCLinker": "c|py",
}  # fmt: skip
IN_ONE = frozenset({"numba", "jax", "pytorch", "mlx", "c"})
"""Linkers that make one piece of code of a whole graph: nobody can tell how long one of its operations takes."""


def linker_of(function: Any) -> str:
    """`numba`, `cvm`, `vm`, …; the name of its class where PyTensor has no word for it."""
    linker = function.maker.linker
    name = type(linker).__name__
    if name == "VMLinker":
        return "cvm" if linker.use_cloop else "vm"
    return WORDS.get(name, name)
