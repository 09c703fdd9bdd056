"""Names of kernels as two tools write them: Nsight Compute's mangled, torch.profiler's demangled.

ncu's own demangled names differ from those of other tools (`at::` for `at::native::`, `T2` for a type). So ncu is asked
for mangled names, which the C++ library demangles as it does for torch.profiler.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cache, lru_cache
from typing import Any

MANGLED = re.compile(r"_Z[\w.$]+")
SYMBOL = re.compile(r"[A-Za-z_][\w.$]*")
"""The symbol of a function: a mangled name, or the name of a function in C."""
IDENTIFIER = re.compile(r"(?<!\w)[A-Za-z_]\w*(?!\w|\s*::)")
"""A word that is no namespace."""
CLUTTER = frozenset({"call", "const", "unsigned", "void"})
"""What one demangler writes and another does not."""
LAMBDA = re.compile(r"\{lambda[^{}]*\}|\[lambda[^\[\]]*\]|\(anonymous namespace\)|<unnamed>")
OPERATOR = re.compile(r"operator\s*\(\)")


@lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """`_Z3addPf` -> `add(float*)`. A name that is not mangled, or that cannot be demangled here, stays as it is."""
    library = _load_cxx_library()
    if library is None or not MANGLED.fullmatch(name):
        return name
    status = ctypes.c_int()
    text = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        library.free(text)


@cache
def _load_cxx_library() -> Any:
    """The C++ library, or None where there is none."""
    try:
        library = ctypes.CDLL(ctypes.util.find_library("stdc++") or "libstdc++.so.6")
        library.__cxa_demangle.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        library.__cxa_demangle.restype = ctypes.c_void_p
        library.free.argtypes = (ctypes.c_void_p,)
        library.free.restype = None
    except (OSError, AttributeError):
        return None
    return library


@lru_cache(maxsize=4096)
def name_outline(name: str) -> str:
    """The part of a name that all demanglers write alike: the function and the words of its template arguments.

    Namespaces are left out.
    """
    function = function_name(name)
    text = _drop_clutter(name)
    begin = text.find(f"{function}<")
    if begin < 0:
        return function
    depth, end = 0, len(text)
    for place in range(begin + len(function), len(text)):
        depth += {"<": 1, ">": -1}.get(text[place], 0)
        if not depth:
            end = place
            break
    words = set(IDENTIFIER.findall(text[begin + len(function) : end])) - CLUTTER
    return f"{function}<{','.join(sorted(words))}>"


def _drop_clutter(name: str) -> str:
    return OPERATOR.sub("call", LAMBDA.sub("", name))


@lru_cache(maxsize=4096)
def function_name(name: str) -> str:
    """The bare name of the function: `vectorized_elementwise_kernel`."""
    text = _drop_clutter(name)
    depth, bare = 0, list[str]()
    for letter in text:
        if letter in "<(":
            if letter == "(" and not depth and bare:
                break
            depth += 1
        elif letter in ">)":
            depth = max(0, depth - 1)
        elif not depth:
            bare.append(letter)
    words = "".join(bare).split()
    return words[-1].rpartition("::")[2] if words else name


# ---- Two sequences of launches of the same program, matched by order and name ---------------------------------------

MOST = 5_000
"""Launches that differ in the middle and are still compared one by one; the time grows with their square."""


def align_names(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of positions with equal names, rising in both. Equal beginnings and ends are paired one by one."""
    head = 0
    while head < min(len(left), len(right)) and left[head] == right[head]:
        head += 1
    tail = 0
    while tail < min(len(left), len(right)) - head and left[-1 - tail] == right[-1 - tail]:
        tail += 1
    pairs = [(index, index) for index in range(head)]
    first, second = left[head : len(left) - tail], right[head : len(right) - tail]
    if first and second and max(len(first), len(second)) <= MOST:
        for block in SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks():
            pairs += [(head + block.a + index, head + block.b + index) for index in range(block.size)]
    pairs += [(len(left) - tail + index, len(right) - tail + index) for index in range(tail)]
    return pairs
