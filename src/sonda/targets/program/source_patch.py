"""A remedy as a change of the program's source: a unified diff that `patch -p1` and `git apply` take.

Places come from the program as it ran: the line that made a loader, an optimizer, a model. The syntax tree says where
the call's arguments stand, so that everything else of the file stays as it was written.
"""

from __future__ import annotations

import ast
import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sonda.record.trials import SourcePatch

LOADER_ARGUMENTS = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers")
"""Of a DataLoader, in the order of their positions."""
OF_LOADERS = frozenset({"workers", "pin", "batch"})
OF_OPTIMIZERS = frozenset({"fused", "foreach"})
OF_MODELS = frozenset({"channels_last", "compile", "autocast"})


class NoPlaceError(Exception):
    """The line is not written in a way that can be changed safely."""


@dataclass(frozen=True)
class Edit:
    """Text in place of what stands between two offsets of a file."""

    begin: int
    end: int
    text: str


def make_patch(remedy: str, value: int | None, survey: Mapping[str, Any], folder: Path) -> SourcePatch:
    """The patch that applies a remedy for good; without `text` where its line cannot be found or changed."""
    places = _places(remedy, value, survey)
    change = describe_change(remedy, value, places[0] if places else {})
    place = f"{Path(places[0]['file']).name}:{places[0]['line']}" if places else ""
    if not places:
        return SourcePatch(change=change)
    texts: dict[Path, tuple[str, str]] = {}
    try:
        for file in dict.fromkeys(Path(place["file"]) for place in places):
            source = _read(file)
            lines = [place for place in places if Path(place["file"]) == file]
            changed = _changed(source, remedy, value, lines, survey)
            compile(changed, str(file), "exec", dont_inherit=True)
            texts[file] = source, changed
    except (OSError, UnicodeDecodeError, SyntaxError, NoPlaceError):
        return SourcePatch(change=change, place=place)
    root = folder if all(file.is_relative_to(folder) for file in texts) else Path(os.path.commonpath(
        [file.parent for file in texts]
    ))  # fmt: skip
    diff = "".join(_diff(file.relative_to(root).as_posix(), *pair) for file, pair in texts.items())
    return SourcePatch(text=diff, folder=str(root), change=change, place=place)


def patched_sources(remedy: str, value: int | None, survey: Mapping[str, Any]) -> dict[Path, str]:
    """The whole text of every file that the patch changes."""
    changed: dict[Path, str] = {}
    places = _places(remedy, value, survey)
    for file in dict.fromkeys(Path(place["file"]) for place in places):
        lines = [place for place in places if Path(place["file"]) == file]
        changed[file] = _changed(_read(file), remedy, value, lines, survey)
    return changed


def _read(file: Path) -> str:
    with file.open(encoding="utf-8", newline="") as opened:
        source = opened.read()
    if "\r" in source or "\f" in source:
        raise NoPlaceError  # lines that a patch and the syntax tree count differently
    return source


def describe_change(remedy: str, value: int | None, place: Mapping[str, Any]) -> str:
    """What to write, in code."""
    device = str(place.get("device") or "cpu")
    return {
        "threads": f"torch.set_num_threads({value})",
        "tf32": 'torch.set_float32_matmul_precision("high")',
        "channels_last": "model.to(memory_format=torch.channels_last)",
        "compile": "model.compile()",
        "autocast": f'with torch.autocast("{device}", torch.bfloat16): around the forward',
        "workers": f"DataLoader(..., num_workers={value}, persistent_workers=True)",
        "pin": "DataLoader(..., pin_memory=True)",
        "batch": f"DataLoader(..., batch_size={value} * as large)",
        "fused": f"{place.get('name', 'optimizer')}(..., fused=True)",
        "foreach": f"{place.get('name', 'optimizer')}(..., foreach=True)",
    }[remedy]


def _places(remedy: str, value: int | None, survey: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where the remedy has to be written, each line once."""
    candidates: Iterable[dict[str, Any]]
    if remedy in OF_LOADERS:
        candidates = [loader for loader in survey["loaders"] if concerns_loader(remedy, value, loader)]
    elif remedy in OF_OPTIMIZERS:
        able = f"can_{'fuse' if remedy == 'fused' else remedy}"
        candidates = [optimizer for optimizer in survey["optimizers"] if optimizer[able]]
    elif remedy in OF_MODELS:
        candidates = survey["models"]
    else:
        script = survey.get("script") or {}
        candidates = [survey["set_threads"]] if remedy == "threads" and survey["set_threads"] else [script]
    places = [place for place in candidates if place.get("file")]
    return list({(place["file"], place["line"]): place for place in places}.values())


def concerns_loader(remedy: str, value: int | None, loader: Mapping[str, Any]) -> bool:
    """Whether a remedy changes this loader, by the rules of `frameworks/torch/observe/trial/remedies.py`."""
    if remedy == "workers":
        return bool(loader["workers"] < (value or 0))
    if remedy == "pin":
        return not loader["pin"]
    return bool(loader["batch"]) and loader["samples"] >= 4 * (value or 2) * loader["batch"]


# ---- edits ----------------------------------------------------------------------------------------------------------


def _changed(
    source: str, remedy: str, value: int | None, places: Sequence[Mapping[str, Any]], survey: Mapping[str, Any]
) -> str:
    tree = ast.parse(source)
    text = _Text(source)
    edits: list[Edit] = []
    for place in places:
        line = int(place.get("line", 0))
        if remedy in OF_LOADERS:
            edits += _loader_edits(text, _call(tree, line, "DataLoader"), remedy, value)
        elif remedy in OF_OPTIMIZERS:
            edits.append(_set_keyword(text, _call(tree, line, str(place["name"])), remedy, "True"))
        elif remedy in OF_MODELS:
            edits += _model_edits(text, tree, line, remedy, place)
        elif remedy == "threads" and survey["set_threads"]:
            call = _call(tree, line, "set_num_threads")
            if len(call.args) != 1:
                raise NoPlaceError
            edits.append(text.replace(call.args[0], str(value)))
        else:
            edits.append(_after_import(text, tree, describe_change(remedy, value, {})))
    if remedy in OF_MODELS and remedy != "compile" and not _imports_torch(tree):
        edits.append(_at_top(text, tree, "import torch"))
    return text.apply(edits)


class _Text:
    """A source and the offsets of its syntax tree, whose columns count bytes of UTF-8."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines = source.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def begin(self, node: Any) -> int:
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: Any) -> int:
        return self.offset(node.end_lineno, node.end_col_offset)

    def of(self, node: Any) -> str:
        return self.source[self.begin(node) : self.end(node)]

    def replace(self, node: Any, text: str) -> Edit:
        return Edit(self.begin(node), self.end(node), text)

    def apply(self, edits: Sequence[Edit]) -> str:
        text = self.source
        for edit in sorted(dict.fromkeys(edits), key=lambda edit: edit.begin, reverse=True):
            text = text[: edit.begin] + edit.text + text[edit.end :]
        return text


def _call(tree: ast.AST, line: int, name: str) -> ast.Call:
    """The innermost call on a line that names what was made; where none does, the only call there."""
    calls = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]  # fmt: skip
    named = [call for call in calls if _name(call.func) == name]
    if not named:
        raise NoPlaceError
    return min(named, key=lambda call: (call.end_lineno or 0) - call.lineno)


def _name(function: ast.AST) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _set_keyword(text: _Text, call: ast.Call, name: str, value: str, position: int = -1) -> Edit:
    """Give an argument of a call this value, whether it is written there or not."""
    if any(keyword.arg is None for keyword in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
        raise NoPlaceError  # it may be among what is unpacked
    for keyword in call.keywords:
        if keyword.arg == name:
            return text.replace(keyword.value, value)
    if 0 <= position < len(call.args):
        return text.replace(call.args[position], value)
    last: list[Any] = sorted([*call.args, *call.keywords], key=text.end)
    if not last:
        raise NoPlaceError
    if isinstance(last[-1], ast.GeneratorExp) and len(last) == 1:
        raise NoPlaceError  # a lone generator has no parentheses of its own
    return Edit(text.end(last[-1]), text.end(last[-1]), f", {name}={value}")


def _loader_edits(text: _Text, call: ast.Call, remedy: str, value: int | None) -> list[Edit]:
    if remedy == "pin":
        return [_set_keyword(text, call, "pin_memory", "True")]
    if remedy == "workers":
        position = LOADER_ARGUMENTS.index("num_workers")
        workers = _set_keyword(text, call, "num_workers", str(value), position)
        persistent = _set_keyword(text, call, "persistent_workers", "True")
        if workers.begin == persistent.begin:
            return [Edit(workers.begin, workers.end, workers.text + persistent.text)]
        return [workers, persistent]
    position = LOADER_ARGUMENTS.index("batch_size")
    written = next((keyword.value for keyword in call.keywords if keyword.arg == "batch_size"), None)
    written = written or (call.args[position] if position < len(call.args) else None)
    if written is None:
        raise NoPlaceError
    if isinstance(written, ast.Constant) and isinstance(written.value, int):
        larger = str(written.value * (value or 2))
    else:
        plain = isinstance(written, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
        larger = f"{value} * {text.of(written) if plain else f'({text.of(written)})'}"
    return [_set_keyword(text, call, "batch_size", larger, position)]


def _model_edits(text: _Text, tree: ast.AST, line: int, remedy: str, place: Mapping[str, Any]) -> list[Edit]:
    """Lines behind the statement that makes the model."""
    device, one_tensor = str(place.get("device") or "cpu"), bool(place.get("tensor"))
    statements = [
        node for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]  # fmt: skip
    if not statements:
        raise NoPlaceError
    statement = min(statements, key=lambda node: (node.end_lineno or 0) - node.lineno)
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if len(targets) != 1 or not isinstance(targets[0], ast.Name | ast.Attribute):
        raise NoPlaceError
    model = text.of(targets[0])
    lines = {
        "compile": [f"{model}.compile()"],
        "channels_last": [f"{model}.to(memory_format=torch.channels_last)"],
        "autocast": [
            f'{model}.forward = torch.autocast("{device}", torch.bfloat16)({model}.forward)',
            f"{model}.register_forward_hook(lambda module, inputs, output: output.float())  # the loss in float32",
        ][: 1 + one_tensor],
    }[remedy]
    return [_line_after(text, statement, lines)]


def _line_after(text: _Text, statement: ast.stmt, lines: Sequence[str]) -> Edit:
    first = text.lines[statement.lineno - 1]
    indent = first[: len(first) - len(first.lstrip())]
    last = text.lines[(statement.end_lineno or statement.lineno) - 1]
    behind = last.encode()[statement.end_col_offset or 0 :].decode().strip()
    before = first.encode()[: statement.col_offset].decode().strip()
    if before or (behind and not behind.startswith("#")):
        raise NoPlaceError  # several statements in a line
    at = text.starts[statement.end_lineno or statement.lineno]
    newline = "" if last.endswith("\n") else "\n"
    return Edit(at, at, newline + "".join(f"{indent}{line}\n" for line in lines))


def _imports_torch(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Import)
        and any(name.name.split(".")[0] == "torch" and not name.asname for name in node.names)
        for node in tree.body
    )


def _after_import(text: _Text, tree: ast.Module, line: str) -> Edit:
    """A line behind the file's imports, among which that of torch is."""
    last = None
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            last = node
    if last is None:
        raise NoPlaceError
    lines = [line] if _imports_torch(tree) else ["import torch", line]
    return _line_after(text, last, lines)


def _at_top(text: _Text, tree: ast.Module, line: str) -> Edit:
    """A line before the first import that is not from the future."""
    for node in tree.body:
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__"):
            at = text.starts[node.lineno - 1]
            return Edit(at, at, f"{line}\n")
    raise NoPlaceError


def _diff(name: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
