"""Compiled kernels: plain functions turned into machine code on first use and kept in the user's cache directory."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from sonda.record.errors import require_module
from sonda.record.files.user_cache import user_cache

NOT_NEEDED = frozenset({
    "WithLifting", "InlineClosureLikes", "RewriteSemanticConstants", "DeadBranchPrune", "GenericRewrites",
    "RewriteDynamicRaises", "MakeFunctionToJitFunction", "InlineInlinables", "FindLiterallyCalls", "LiteralUnroll",
    "LiteralPropagationSubPipelinePass", "ReconstructSSA", "PreLowerStripPhis", "InlineOverloads", "NopythonRewrites",
    "NoPythonSupportedFeatureValidation", "AnnotateTypes", "DumpParforDiagnostics",
})  # fmt: skip
"""numba's passes over what kernels do not have: closures, literals that matter, array expressions, parallel loops; and
those that give every assignment a variable of its own, which LLVM does anyway. They are half of the time of compiling.
A pass that a version of numba does not know by this name is simply done."""


def require_compiler() -> None:
    """Raise MissingExtraError unless kernels can be compiled here."""
    require_module("numba", "Numba", "numba")


def cache_directory() -> Path:
    """Where compiled kernels are kept: `sonda/kernels` in the user's cache directory."""
    return user_cache("kernels")


@cache
def compiled(kernel: Callable[..., Any], *called: Callable[..., Any], loose: bool = False) -> Callable[..., Any]:
    """The same function, compiled by numba when it is first called with given types of arguments.

    A kernel calls no other kernel but those named here, which are in its own file, and reads no module global: numba's
    cache follows the file that holds the kernel and nothing else, so it would go on using what it once saw. Every
    variable of a kernel keeps one type. `loose`: its sums may be added up in any order, many at a time. Where the cache
    directory cannot be written, the kernel is compiled anew in every process. Raises MissingExtraError without numba.
    """
    require_compiler()
    import numba

    # Kernels never divide by zero; NumPy's error model leaves out the test before every division.
    how: dict[str, Any] = {"nogil": True, "error_model": "numpy", "pipeline_class": _short_compiler()}
    how["fastmath"] = {"reassoc"} if loose else False
    if called:
        inner = {inner_function.__name__: numba.njit(**how)(inner_function) for inner_function in called}
        kernel = FunctionType(kernel.__code__, {**kernel.__globals__, **inner}, kernel.__name__)
    config = numba.config
    before = config.CACHE_DIR
    place = _place(before)
    try:
        config.CACHE_DIR = place
        compiled_kernel: Callable[..., Any] = numba.njit(cache=bool(place), **how)(kernel)
        return compiled_kernel
    finally:
        config.CACHE_DIR = before  # functions of the program around are kept where it keeps them


@cache
def _short_compiler() -> Any:
    from numba.core.compiler import CompilerBase, DefaultPassBuilder

    class Short(CompilerBase):  # type: ignore[misc]  # numba has no types
        def define_pipelines(self) -> list[Any]:
            steps = DefaultPassBuilder.define_nopython_pipeline(self.state)
            steps.passes = [step for step in steps.passes if step[0].__name__ not in NOT_NEEDED]
            return [steps]

    return Short


def _place(setting: str) -> str:
    """The directory for compiled kernels, which is where numba is `told` to keep its own or else the user's, made where
    there is none; '' where nothing can be kept there."""
    try:
        directory = Path(setting) if setting else cache_directory()
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # nothing can be written there, or the user has no home
        return ""
    return str(directory) if os.access(directory, os.W_OK) else ""
