"""What the source of a function tells of a line in it: the loops around it, and the lines that its values reach.

Names are followed, not objects: a statement feeds those that read what it writes. That is more than what happens, so
that a statement of which this says that it feeds nothing does feed nothing, short of effects behind other names.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

CALLER = 0
"""In the place of a line: what a function returns, yields, or writes into what it was given."""
MAPPINGS = frozenset(
    {"map", "filter", "starmap", "reduce", "vectorize", "apply", "apply_along_axis", "imap", "applymap"}
)
"""Functions that call another one for each element."""
OUTPUTS = frozenset(
    {"print", "write", "writelines", "writerow", "writerows", "flush", "close", "dump", "info", "debug", "warning",
     "error"}
)  # fmt: skip
"""Functions of libraries that write what they are given, and change nothing of it."""
LOOPS = ast.For | ast.AsyncFor | ast.While
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class LineFacts(NamedTuple):
    """What is known of a line."""

    statement: int
    """First line of the innermost statement around it; 0 where that is not known."""
    loops: tuple[int, ...] = ()
    """First lines of the loops in the function that it runs in, the outermost first."""
    feeds: tuple[int, ...] = ()
    """First lines of the statements of the function that its values reach, or CALLER."""


UNKNOWN = LineFacts(0)


class FunctionEffects:
    """Which functions of a program change something that outlives their call, by name. Several of one name are one."""

    def __init__(self) -> None:
        self._functions: dict[str, list[ast.AST]] = {}
        self._known: dict[str, bool] = {}

    def add(self, tree: ast.AST) -> None:
        """Add the functions of a file."""
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                self._functions.setdefault(node.name, []).append(node)

    def may_change(self, name: str) -> bool:
        """Whether calling a function of this name may change what it is called on, or what it is given."""
        if name not in self._functions:
            return name not in OUTPUTS
        if name not in self._known:
            self._known[name] = True  # where it calls itself
            self._known[name] = any(_Flow(function, self).changes for function in self._functions[name])
        return self._known[name]


class SourceFile:
    """A file of source, its lines in UTF-8; knows nothing of one that cannot be parsed. `effects` are those of all
    files of the program."""

    def __init__(self, lines: list[bytes], effects: FunctionEffects | None = None) -> None:
        self._effects = effects or FunctionEffects()
        try:
            # As text: in bytes a line could name another encoding.
            self._tree: ast.Module | None = ast.parse(b"\n".join(lines).decode())
            self._effects.add(self._tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._tree = None
        self._flows: dict[ast.AST, _Flow] = {}

    @cached_property
    def _scopes(self) -> dict[int, list[ast.AST]]:
        """By first line: functions, and comprehensions that have a frame of their own."""
        scopes: dict[int, list[ast.AST]] = {}
        for node in ast.walk(self._tree) if self._tree is not None else ():
            if isinstance(node, FUNCTIONS):
                scopes.setdefault(min([node.lineno, *(at.lineno for at in node.decorator_list)]), []).append(node)
            elif isinstance(node, COMPREHENSIONS | ast.Lambda):
                scopes.setdefault(node.lineno, []).append(node)
        return scopes

    def look_up(self, function: str, first_line: int, line: int, column: int = -1) -> LineFacts:
        """What is known of a position in a function, whose qualified name is given; `column` -1 is unknown."""
        if self._tree is None or line <= 0:
            return UNKNOWN
        name = function.rpartition(".")[2]
        scope = self._find_scope(name, first_line, line)
        if scope is None:
            return UNKNOWN
        if isinstance(scope, COMPREHENSIONS):
            return LineFacts(line, (scope.lineno,), (CALLER,))
        if isinstance(scope, ast.Lambda):
            return LineFacts(line, (), (CALLER,))
        if scope not in self._flows:
            self._flows[scope] = _Flow(scope, self._effects)
        return self._flows[scope].look_up(line, column)

    def _find_scope(self, name: str, first_line: int, line: int) -> ast.AST | None:
        if name == "<module>":
            return self._tree
        kinds = {"<lambda>": ast.Lambda, "<listcomp>": ast.ListComp, "<setcomp>": ast.SetComp,
                 "<dictcomp>": ast.DictComp, "<genexpr>": ast.GeneratorExp}  # fmt: skip
        for scope in self._scopes.get(first_line, ()):
            if isinstance(scope, kinds.get(name, FUNCTIONS)) and getattr(scope, "name", name) == name:
                return scope if line <= getattr(scope, "end_lineno", line) else None
        return None


@dataclass
class _Statement:
    """A simple statement, or the head of a compound one."""

    line: int
    end: int
    loops: tuple[int, ...]
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    assigns: set[str] = field(default_factory=set)
    """Names that it gives a new value, whatever they were."""
    heads: set[str] = field(default_factory=set)
    """What stands among its writes for deciding whether others run."""
    returns: bool = False
    mapped: list[ast.expr] = field(default_factory=list)
    """Comprehensions, and calls of functions that call another one for each element."""

    def loops_around(self, line: int, column: int) -> tuple[int, ...]:
        """The loops around a position in it."""
        inner = [
            node.lineno for node in self.mapped
            if (node.lineno, node.col_offset) <= (line, max(column, 0)) <= (node.end_lineno or 0, node.end_col_offset)
        ] if column >= 0 else []  # fmt: skip
        return (*self.loops, *inner)


class _Flow:
    """The statements of a function, and which of them feed which."""

    def __init__(self, scope: ast.AST, effects: FunctionEffects) -> None:
        self._effects = effects
        self.statements: list[_Statement] = []
        given = scope.args if isinstance(scope, FUNCTIONS) else None
        arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs] if given else []
        self._given = {argument.arg for argument in arguments}
        for statement in getattr(scope, "body", []):
            self._add(statement, (), ())
        self.statements.sort(key=lambda statement: statement.line)
        self._note_elements(scope)
        self._reached: dict[int, tuple[int, ...]] = {}

    @property
    def changes(self) -> bool:
        """Whether it writes into what it was given, or into what it did not make."""
        made = {name for statement in self.statements for name in statement.assigns} - self._given
        kept = {name.partition(".")[0] for at in self.statements for name in at.writes - at.assigns - at.heads}
        return bool(kept - made)

    def look_up(self, line: int, column: int) -> LineFacts:
        around = [place for place, at in enumerate(self.statements) if at.line <= line <= at.end]
        if not around:
            return UNKNOWN
        place = around[-1]
        statement = self.statements[place]
        feeds = {at for member in self._find_turn(place) for at in self._feeds_of(member)}
        return LineFacts(statement.line, statement.loops_around(line, column), tuple(sorted(feeds)))

    def _feeds_of(self, place: int) -> tuple[int, ...]:
        if place not in self._reached:
            self._reached[place] = self._reach(place)
        return self._reached[place]

    def _find_turn(self, place: int) -> list[int]:
        """The statements that a sample at this one may stand for: at the last of a loop all of the loop. Where they
        call nothing, the interpreter lets another thread sample them at the end of a turn only."""
        statement = self.statements[place]
        inner = statement.loops[-1:]
        turn = [at for at, other in enumerate(self.statements) if inner and inner[0] in other.loops]
        return turn if turn and turn[-1] == place else [place]

    def _add(self, node: ast.stmt, loops: tuple[int, ...], heads: tuple[str, ...]) -> None:
        """Note a statement and those in it; `heads` stand for the compound ones around it, which decide whether it
        runs."""
        if isinstance(node, FUNCTIONS | ast.ClassDef):
            return  # it runs in frames of its own
        bodies = [body for name in ("body", "orelse", "finalbody") for body in getattr(node, name, [])]
        bodies += [inner for handler in getattr(node, "handlers", []) for inner in handler.body]
        bodies += [inner for case in getattr(node, "cases", []) for inner in case.body]
        head = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt | ast.excepthandler)]
        end = max([node.lineno, *(getattr(child, "end_lineno", 0) or 0 for child in head)])
        own = loops
        if isinstance(node, LOOPS):
            loops = (*loops, node.lineno)
        end = (node.end_lineno or node.lineno) if not bodies else end
        # The condition of a `while` is computed in each turn.
        around = loops if isinstance(node, ast.While) else own
        mapped: list[ast.expr] = [
            inner for child in head for inner in ast.walk(child)
            if isinstance(inner, COMPREHENSIONS) or (isinstance(inner, ast.Call) and _last_name(inner.func) in MAPPINGS)
        ]  # fmt: skip
        statement = _Statement(node.lineno, end, around, set(heads), mapped=mapped)
        for child in head:
            self._read(child, statement)
        if isinstance(node, ast.Expr):
            self._note_effects(node.value, statement)
        if isinstance(node, ast.AugAssign):
            statement.assigns.clear()
            statement.reads |= statement.writes
        statement.returns |= isinstance(node, ast.Return)
        self.statements.append(statement)
        if bodies:
            statement.writes.add(head_name := f"line {node.lineno}")
            statement.heads.add(head_name)
            heads = (*heads, head_name)
        for body in bodies:
            self._add(body, loops, heads)

    def _note_elements(self, scope: ast.AST) -> None:
        """What changes an element in a loop over something changes that too."""
        loops = [node for node in ast.walk(scope) if isinstance(node, ast.For | ast.AsyncFor)]
        for loop in sorted(loops, key=lambda loop: -loop.lineno):  # the inner ones first
            for element, whole in _elements(loop):
                for statement in self.statements:
                    inside = loop.lineno in statement.loops
                    if inside and element in statement.writes and element not in statement.assigns:
                        statement.writes.add(whole)
                        statement.returns |= whole.partition(".")[0] in self._given

    def _read(self, node: ast.AST, statement: _Statement) -> None:
        """Note what an expression reads and writes."""
        if isinstance(node, ast.Yield | ast.YieldFrom):
            statement.returns = True
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and (name := _base(node)):
            if isinstance(node.ctx, ast.Load):
                statement.reads.add(name)
            else:
                statement.writes.add(name)
                if isinstance(node, ast.Name):
                    statement.assigns.add(name)
                statement.returns |= not isinstance(node, ast.Name) and name.partition(".")[0] in self._given
            self._read_inside(node, statement)
            return
        for child in ast.iter_child_nodes(node):
            self._read(child, statement)

    def _read_inside(self, node: ast.AST, statement: _Statement) -> None:
        """Note what the indices and arguments on the way to a name read."""
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.Call):
            if isinstance(node, ast.Subscript):
                self._read(node.slice, statement)
            if isinstance(node, ast.Call):
                for child in (*node.args, *node.keywords):
                    self._read(child, statement)
            node = node.func if isinstance(node, ast.Call) else node.value

    def _note_effects(self, value: ast.expr, statement: _Statement) -> None:
        """A call whose result nobody takes changes what it is called on, or what it is given."""
        for call in ast.walk(value):
            if not isinstance(call, ast.Call):
                continue
            if not self._effects.may_change(_last_name(call.func)):
                return
            changed = [call.func.value] if isinstance(call.func, ast.Attribute) else []
            for node in [*changed, *call.args, *(keyword.value for keyword in call.keywords)]:
                name = _base(node)
                if name:
                    statement.writes.add(name)
                    statement.returns |= name.partition(".")[0] in self._given
            return  # the outermost

    def _reach(self, place: int) -> tuple[int, ...]:
        reached: set[int] = set()
        ahead = [place]
        lines: set[int] = set()
        while ahead:
            source = self.statements[ahead.pop()]
            if source.returns:
                lines.add(CALLER)
            for at, statement in enumerate(self.statements):
                if at not in reached and self._feeds(source, statement):
                    reached.add(at)
                    lines.add(statement.line)
                    ahead.append(at)
        return tuple(sorted(lines))

    def _feeds(self, source: _Statement, reader: _Statement) -> bool:
        shared = source.writes & reader.reads
        if not shared or source is reader:
            return False
        if reader.line > source.line:
            return True
        together = set(source.loops) & set(reader.loops)
        # What lies in an object outlives the call of a function, which may be called again.
        kept = {name for name in shared if "." in name or name in self._given}
        if not together:
            return bool(kept - {name for statement in self.statements for name in statement.assigns})
        # The next turn reads what this one has left, unless it gives the name another value first.
        inner = max(together)
        renewed = {
            name for statement in self.statements
            if statement is not source and (inner in statement.loops or statement.line == inner)
            and statement.line < reader.line for name in statement.assigns
        }  # fmt: skip
        return bool(shared - renewed)


def _elements(loop: ast.For | ast.AsyncFor) -> list[tuple[str, str]]:
    """Names that a loop gives elements of something, each with the name of that."""
    target, source = loop.target, loop.iter
    called = _last_name(source.func) if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) else ""
    given = source.args if isinstance(source, ast.Call) else []
    if called == "enumerate" and given and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        pairs = [(target.elts[1], given[0])]
    elif called == "zip" and isinstance(target, ast.Tuple):
        pairs = list(zip(target.elts, given, strict=False))
    else:
        pairs = [(target, source)]
    return [(name.id, _base(whole)) for name, whole in pairs if isinstance(name, ast.Name) and _base(whole)]


def _base(node: ast.AST) -> str:
    """`out` of `out.data[3]`, `self.meter` of `self.meter.total`; '' of what has no name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred | ast.Call):
        if isinstance(node, ast.Call):
            # A method gives a part of what it is called on, a function may give anything.
            if not isinstance(node.func, ast.Attribute):
                return ""
            node = node.func.value
            continue
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return f"self.{names[-1]}" if node.id == "self" and names else node.id


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def join_lines(lines: tuple[int, ...]) -> str:
    """As a column of words holds them."""
    return ",".join(map(str, lines))
