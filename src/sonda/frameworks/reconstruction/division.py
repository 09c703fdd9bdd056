"""Finds the line in which processes of a job divide their work: where the number of a process chooses from something.

Names are followed: from where a process gets its number, through the calls that pass it on, to an index with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

NUMBERS = frozenset({"get_rank", "get_local_rank"})
"""Functions that give the number of a process."""
VARIABLES = frozenset({"RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"})
"""Environment variables that hold it."""
SPAWNS = frozenset({"spawn", "start_processes"})
"""Functions that call another one with the number of a process before all else."""
SAME = frozenset({"int", "str"})
"""Functions whose result is the number as well."""
RANGES = frozenset({"range", "islice", "slice"})
CHOOSING = frozenset({"to", "cuda", "device", "set_device", "manual_seed", "seed"})
"""Functions for which the number chooses a device or a seed, and no work."""
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
MOST_TURNS = 20
"""Calls through which a number is followed at most."""


class Division(NamedTuple):
    """Where work is divided."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class _Scope:
    """A function, or the code of a module outside of functions."""

    file: str
    name: str
    node: ast.AST
    parameters: tuple[str, ...] = ()

    def walk(self) -> Iterator[ast.AST]:
        """Its nodes in the order of the source, without those of functions within."""
        waiting = list(reversed(list(ast.iter_child_nodes(self.node))))
        while waiting:
            node = waiting.pop()
            if isinstance(node, FUNCTIONS):
                continue
            yield node
            waiting += reversed(list(ast.iter_child_nodes(node)))


def find_division(sources: Mapping[str, bytes]) -> Division | None:
    """Where the number of a process chooses its part of something, in these files; None where no line is seen to.

    A slice or range comes before a single index: that may choose a device or a seed as well.
    """
    scopes = [scope for file, source in sources.items() for scope in _scopes_of(file, source)]
    by_name: dict[str, list[_Scope]] = {}
    for scope in scopes:
        by_name.setdefault(scope.name.rpartition(".")[2], []).append(scope)
    known = {(id(scope.node), name) for scope in scopes for name in _begin(scope, by_name, scopes)}
    fields: set[str] = set()
    for _ in range(MOST_TURNS):
        before = len(known) + len(fields)
        for scope in scopes:
            _follow(scope, known, fields, by_name)
        if len(known) + len(fields) == before:
            break
    ranked = [
        (order, at) for scope in scopes for order, at in _divisions(scope, _names(scope, known), fields)
    ]  # fmt: skip
    return min(ranked, key=lambda item: item[0])[1] if ranked else None


def _scopes_of(file: str, source: bytes) -> list[_Scope]:
    try:
        tree = ast.parse(source.decode())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    scopes = [_Scope(file, "<module>", tree)]

    def add(node: ast.AST, around: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = f"{around}{child.name}" if isinstance(child, FUNCTIONS | ast.ClassDef) else ""
            if isinstance(child, FUNCTIONS):
                given = [*child.args.posonlyargs, *child.args.args, *child.args.kwonlyargs]
                parameters = tuple(argument.arg for argument in given if argument.arg not in ("self", "cls"))
                scopes.append(_Scope(file, name, child, parameters))
                add(child, f"{name}.<locals>.")
            else:
                add(child, f"{name}." if name else around)

    add(tree, "")
    return scopes


def _begin(scope: _Scope, by_name: Mapping[str, list[_Scope]], scopes: Iterable[_Scope]) -> set[str]:
    """Names in a function that hold the number because of how the function is started."""
    names = set()
    for other in scopes:
        for node in other.walk():
            if not isinstance(node, ast.Call):
                continue
            called = _last_name(node.func)
            target = next((keyword.value for keyword in node.keywords if keyword.arg in ("fn", "target")), None)
            if called in SPAWNS:
                target = target or (node.args[0] if node.args else None)
                if scope in by_name.get(_last_name(target), ()) and scope.parameters:
                    names.add(scope.parameters[0])
            elif called == "Process" and scope in by_name.get(_last_name(target), ()):
                given = next((keyword.value for keyword in node.keywords if keyword.arg == "args"), None)
                counted = _loop_names(other)
                for name, value in zip(scope.parameters, getattr(given, "elts", ()), strict=False):
                    if isinstance(value, ast.Name) and value.id in counted:
                        names.add(name)
    return names


def _loop_names(scope: _Scope) -> set[str]:
    """Names that count the turns of loops."""
    loops = [node for node in scope.walk() if isinstance(node, ast.For | ast.comprehension)]
    ranges = [loop for loop in loops if isinstance(loop.iter, ast.Call) and _last_name(loop.iter.func) == "range"]
    return {loop.target.id for loop in ranges if isinstance(loop.target, ast.Name)}


def _follow(scope: _Scope, known: set[tuple[int, str]], fields: set[str], by_name: Mapping[str, list[_Scope]]) -> None:
    """Add what is given the number in a function: names, fields of objects, and parameters of what it calls."""
    for node in scope.walk():
        names = _names(scope, known)
        if isinstance(node, ast.Assign) and _is_number(node.value, names, fields):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    known.add((id(scope.node), target.id))
                elif isinstance(target, ast.Attribute):
                    fields.add(target.attr)
        elif isinstance(node, ast.Call):
            called = _last_name(node.func)
            made = [other for other in by_name.get("__init__", ()) if other.name.startswith(f"{called}.")]
            for inner in (*by_name.get(called, ()), *made):
                given = [*zip(inner.parameters, node.args, strict=False)]
                given += [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg in inner.parameters]
                known |= {(id(inner.node), name) for name, value in given if _is_number(value, names, fields)}


def _names(scope: _Scope, known: set[tuple[int, str]]) -> frozenset[str]:
    return frozenset(name for node, name in known if node == id(scope.node))


def _is_number(node: ast.AST, names: frozenset[str], fields: set[str]) -> bool:
    """Whether an expression is the number of the process, and not merely made of it."""
    match node:
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(attr=name):
            return name in fields
        case ast.Call(func=function, args=arguments):
            called = _last_name(function)
            if called in SAME and arguments:
                return _is_number(arguments[0], names, fields)
            return called in NUMBERS or (called in ("get", "getenv") and _names_variable(arguments[:1]))
        case ast.Subscript(slice=index):
            return _names_variable([index])
    return False


def _names_variable(nodes: Iterable[ast.AST]) -> bool:
    return any(isinstance(node, ast.Constant) and node.value in VARIABLES for node in nodes)


def _divisions(scope: _Scope, names: frozenset[str], fields: set[str]) -> Iterator[tuple[int, Division]]:
    """Where the number chooses, and 0 for a slice or a range, 1 for an index."""
    apart = {
        id(inner) for call in scope.walk() if isinstance(call, ast.Call) and _last_name(call.func) in CHOOSING
        for value in (*call.args, *call.keywords) for inner in ast.walk(value)
    }  # fmt: skip
    for node in scope.walk():
        if id(node) in apart:
            continue
        parts: list[ast.expr]
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            parts, order = [node.slice], int(not isinstance(node.slice, ast.Slice))
        elif isinstance(node, ast.Call) and _last_name(node.func) in RANGES:
            parts, order = list(node.args), 0
        else:
            continue
        if any(_is_number(inner, names, fields) for part in parts for inner in ast.walk(part)):
            yield order, Division(scope.file, node.lineno, scope.name)


def _last_name(node: ast.AST | None) -> str:
    """`spawn` of `mp.spawn`."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
