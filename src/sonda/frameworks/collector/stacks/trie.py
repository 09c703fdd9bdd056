"""Numbers for stacks: a stack is the number of its innermost frame, and every frame knows the frame that called it."""

from __future__ import annotations

import os
import sys
from array import array
from itertools import islice
from typing import Any

DEEPEST = 256
"""Frames of a stack that are read, the innermost ones: a recursion may have 10,000."""
MOST_FRAMES = 100_000
"""Different frames of a process that are numbered. Code that is made anew again and again has ever new ones."""
MOST_INSTRUCTIONS = 20_000
"""Beyond this instruction of a function only the line is known: columns are found by walking through all of them."""
OWN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))) + os.sep
"""Frames of this folder are Sonda's own. They are left out of stacks."""
LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
NONE = -1
"""The stack without a frame."""
APART = -2
"""Number of functions of Sonda's that run nothing of the program: whatever they call is observing."""
WORK_APART = frozenset({"KernelPass.begin", "KernelPass.end"})
"""Names of such functions: a profiler's start and end may take a second, and are no part of a step."""
UNPLACED = (None, None, None, None)
"""The position of an instruction that the compiler gave none."""
OBSERVING = "<sonda>"
"""File of the function in which Sonda itself was at work."""


class StackTrie:
    """Gives every stack a number. What was defined since the last `take` waits to be written."""

    def __init__(self, place: str = "") -> None:
        self.place = place
        """The directory that names of files may be relative to; '': the current one."""
        self._frames: dict = {}
        """By the stack that called it, the id of its code and its instruction: the number of the stack."""
        self._functions: dict = {}
        """By the id of a code object: the number of the function, NONE for Sonda's own."""
        self._libraries: set = set()
        """Ids of code objects of installed libraries: of these lines are enough, and columns take long to find."""
        self._codes: list = []
        """The code objects, held so that no other one gets the id of one that was dropped."""
        self._facts: list = []
        self._rows = array("q")
        self._count = 0
        self._defined = 0

    def number(self, frame: Any) -> int:
        """The number of the stack whose innermost frame this is."""
        walked: list = []
        while frame is not None and len(walked) < DEEPEST:
            walked.append(frame)
            frame = frame.f_back
        frames = self._frames
        stack = NONE
        try:
            for frame in reversed(walked):
                key = (stack, id(frame.f_code), frame.f_lasti)
                known = frames.get(key)
                stack = self._add(key, frame) if known is None else known
                if self._functions[id(frame.f_code)] == APART:
                    break
            if walked and self._functions[id(frame.f_code)] in (NONE, APART):
                key = (stack, 0, 0)
                known = frames.get(key)
                stack = self._add_observing(key) if known is None else known
        finally:
            walked.clear()  # a frame that is held keeps the function's variables alive
            del frame
        return stack

    def _add(self, key: tuple, frame: Any) -> int:
        """Number the frame that this key is of."""
        stack, code_id, instruction = key
        function = self._functions.get(code_id)
        if function is None:
            function = self._define(frame.f_code)
        if function in (NONE, APART) or self._count >= MOST_FRAMES:
            self._frames[key] = stack  # Sonda's own: as if it were not there
            return int(stack)
        line = frame.f_lineno or 0
        own = code_id not in self._libraries
        position = _find_position(frame.f_code, instruction, line) if own or not line else (line, -1, line, -1)
        return self._append(key, (stack, function, *position))

    def _add_observing(self, key: tuple) -> int:
        function = self._functions.get(0)
        if function is None:
            function = self._functions[0] = self._define_function(OBSERVING, "", 0)
        return self._append(key, (key[0], function, 0, -1, 0, -1))

    def _append(self, key: tuple, row: tuple) -> int:
        number = self._frames[key] = self._count
        self._rows.extend(row)
        self._count += 1
        return number

    def _define(self, code: Any) -> int:
        self._codes.append(code)
        number = NONE
        if not code.co_filename.startswith(OWN):
            name = getattr(code, "co_qualname", code.co_name)
            number = self._define_function(code.co_filename, name, code.co_firstlineno)
            if any(folder in code.co_filename for folder in LIBRARIES):
                self._libraries.add(id(code))
        elif getattr(code, "co_qualname", "") in WORK_APART:
            number = APART
        self._functions[id(code)] = number
        return number

    def _define_function(self, file: str, name: str, line: int) -> int:
        number = self._defined
        self._defined += 1
        self._facts.append({"code": number, "file": file, "name": name, "line": line, **self._find_source(file)})
        return number

    def _find_source(self, file: str) -> dict:
        """How to know the source of a function again: when its file was last written, and its size. Of code that is
        in no file, the text, where a notebook or a console has given it to `linecache`."""
        try:
            found = os.stat(os.path.join(self.place, file))
            return {"written": found.st_mtime_ns, "size": found.st_size}
        except (OSError, ValueError):
            entry = getattr(sys.modules.get("linecache"), "cache", {}).get(file)
        lines = entry[2] if entry is not None and len(entry) == 4 else ()
        return {"text": "".join(lines)} if lines else {}

    def take(self) -> tuple:
        """The definitions and frames that were not taken yet."""
        facts, rows = self._facts, self._rows
        self._facts, self._rows = [], array("q")
        return facts, rows


def _find_position(code: Any, instruction: int, line: int) -> tuple:
    """Line, column, last line and last column of the expression that an instruction belongs to; -1: unknown.

    Python 3.11 gives none to the jump that closes a loop whose body ends with an `if`, and a thread gives up the lock
    just there: the expression before it is taken.
    """
    positions = getattr(code, "co_positions", None)
    if positions is None or not 0 <= instruction < 2 * MOST_INSTRUCTIONS:
        return line, -1, line, -1
    place = next(islice(positions(), instruction // 2, None), UNPLACED)
    if place[0] is None:
        before = islice(positions(), instruction // 2)
        place = next((place for place in reversed(list(before)) if place[0] is not None), UNPLACED)
        line = line or place[0] or 0
    if None in place:
        return line, -1, line, -1
    first, last, column, last_column = place
    return first, column, last, last_column
