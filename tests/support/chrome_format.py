"""What the description of Chrome's trace format, and Perfetto's reader of it, ask of a file."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

META = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index",
        "thread_sort_index": "sort_index"}  # fmt: skip


def faults(text: str) -> list[str]:
    """Everything that is wrong with a trace; [] for one that any reader takes."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            found.append(f"a member twice: {names}")
        return dict(pairs)

    def no_number(word: str) -> None:
        found.append(f"{word} is no JSON")

    found: list[str] = []
    document = json.loads(text, parse_float=Decimal, parse_constant=no_number, object_pairs_hook=once)
    if document.get("displayTimeUnit") not in ("ms", "ns") or not isinstance(document.get("otherData"), dict):
        found.append("the members beside the events are not those of the format")
    named: dict[str, set[Any]] = {name: set() for name in META}
    drawn: dict[tuple[int, int], list[tuple[Decimal, Decimal]]] = {}
    processes: set[int] = set()
    counters: dict[tuple[int, str], Decimal] = {}
    for event in document["traceEvents"]:
        found += [f"{event}: {why}" for why in _event(event)]
        phase, process = event.get("ph"), event.get("pid")
        if phase == "M":
            if event["name"].startswith("thread") and event["name"] in named:
                named[event["name"]].add((process, event["tid"]))
            elif event["name"] in named:
                named[event["name"]].add(process)
            continue
        processes.add(process)
        if phase == "X":
            drawn.setdefault((process, event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
        elif phase == "C":
            before = counters.setdefault((process, event["name"]), event["ts"])
            if event["ts"] < before:
                found.append(f"{event['name']} goes back in time")
            counters[process, event["name"]] = event["ts"]
    for name, those in (("process_name", processes), ("process_sort_index", processes)):
        if named[name] != those:
            found.append(f"{name}: {named[name]}, not {those}")
    for name in ("thread_name", "thread_sort_index"):
        if named[name] != set(drawn):
            found.append(f"{name}: {named[name]}, not {set(drawn)}")
    if len({thread for _, thread in drawn}) < len(drawn):
        found.append("two processes have a thread of one number")
    for track, spans in drawn.items():
        found += [f"thread {track}: {span} is not nested" for span in _not_nested(spans)]
    return found


def _event(event: dict[str, Any]) -> list[str]:
    phase, args = event.get("ph"), event.get("args")
    number = (int, Decimal)
    wanted: dict[str, Any] = {"name": str, "pid": int}
    wanted |= {"X": {"cat": str, "ts": number, "dur": number, "tid": int}, "M": {"tid": int}, "C": {"ts": number}}.get(
        phase or "", {"ph": None}
    )
    wrong = [f"{name} is {event.get(name)!r}" for name, kind in wanted.items() if not _is(event.get(name), kind)]
    if set(event) - {"ph", "args", *wanted}:
        wrong.append("members that the format does not have")
    if phase == "X" and not wrong and event["dur"] < 0:
        wrong.append("it ends before it begins")
    if phase == "M" and (event.get("name") not in META or list(args or ()) != [META[event["name"]]]):
        wrong.append("it names nothing")
    if phase == "C" and not (args and all(_is(value, number) for value in args.values())):
        wrong.append("a counter without a number")
    return wrong


def _is(value: Any, kind: Any) -> bool:
    return kind is not None and isinstance(value, kind) and not isinstance(value, bool)


def _not_nested(spans: list[tuple[Decimal, Decimal]]) -> list[tuple[Decimal, Decimal]]:
    """Spans that neither lie in the last one that is open nor follow it, in the order of the file."""
    open_ends: list[Decimal] = []
    wrong = []
    last = None
    for begin, end in spans:
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        if (open_ends and end > open_ends[-1]) or (last is not None and begin < last):
            wrong.append((begin, end))
        open_ends.append(end)
        last = begin
    return wrong
