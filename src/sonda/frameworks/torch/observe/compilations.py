"""What `torch.compile` compiled: how often each function, how long that took, and where it had to break off."""

from __future__ import annotations

import os
import sys
from typing import Any

MOST = 20
"""Functions, and breaks, that are stated: those that took longest, and those met most often."""
LONGEST_REASON = 300


def compilation_facts() -> dict:
    """`compiled`: functions with their line, how often they were compiled, s, s of all but the first time, and why
    again. `breaks`: lines where a graph ends too early, how often, and why. Empty where nothing was compiled."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return {}
    try:
        compiled, breaks = _compiled(utils), _breaks(utils)
    except Exception:  # another PyTorch
        return {}
    return {**({"compiled": compiled} if compiled else {}), **({"breaks": breaks} if breaks else {})}


def _compiled(utils: Any) -> list:
    functions: dict[tuple, list] = {}
    for metrics in utils.get_compilation_metrics():
        if not metrics.co_name or not metrics.co_filename or "/torch/" in metrics.co_filename:
            continue
        seconds = metrics.entire_frame_compile_time_s or 0.0
        line = f"{os.path.basename(metrics.co_filename)}:{metrics.co_firstlineno}"
        again = str(metrics.compile_id or "").strip("[]").rpartition("/")[2].partition("_")[0] not in ("", "0")
        entry = functions.setdefault((metrics.co_name, line), [0, 0.0, 0.0, ""])
        entry[0] += 1
        entry[1] += seconds
        if again:
            entry[2] += seconds
            entry[3] = _first_line(getattr(metrics, "recompile_reason", None)).partition("#")[0].strip()
    ordered = sorted(functions.items(), key=lambda item: -item[1][1])
    return [[*key, *entry] for key, entry in ordered[:MOST]]


def _first_line(reason: Any) -> str:
    lines = str(reason or "").strip().splitlines()
    return lines[0][:LONGEST_REASON] if lines else ""


def _breaks(utils: Any) -> list:
    places: dict[tuple, int] = {}
    for reason in getattr(utils, "graph_break_reasons", ()):
        frame = reason.user_stack[-1] if reason.user_stack else None
        line = f"{os.path.basename(frame.filename)}:{frame.lineno}" if frame is not None else ""
        key = line, _first_line(reason.reason)
        places[key] = places.get(key, 0) + 1
    # A function that breaks in a loop is left uncompiled as a whole, and says so in its metrics only.
    for metrics in utils.get_compilation_metrics():
        if metrics.fail_type and not metrics.has_guarded_code and metrics.co_filename:
            file = metrics.fail_user_frame_filename or metrics.co_filename
            line = f"{os.path.basename(file)}:{metrics.fail_user_frame_lineno or metrics.co_firstlineno}"
            key = line, _first_line(metrics.fail_reason)
            places[key] = places.get(key, 0) + 1
    ordered = sorted(places.items(), key=lambda item: -item[1])
    return [[*key, times] for key, times in ordered[:MOST]]
