"""Traces of torch.profiler (Kineto) and others in Chrome's format: one file, or one per rank, become a run.

A file is read twice: its events are spilled in sorted runs, then linked in the order of time and written as spans.
Memory does not grow with the file. Large plain files are read from both ends of their middle by two processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from sonda.imports.kineto.events import decode_event, decode_events, raw_events
from sonda.imports.kineto.text import LARGEST_TAIL, EventText, is_packed, likely_begin, open_text
from sonda.imports.trace.ranks import RankEvents
from sonda.imports.trace.raw_events import EventTables
from sonda.imports.trace.spill import SortedRun, Spill
from sonda.record.errors import SondaError
from sonda.record.progress import Say

SHARED_FROM = 48 << 20
"""Bytes from which a second process is worth its start."""


PASSED_OVER = f"more than {LARGEST_TAIL >> 20} MiB stand behind the events: passed over"


class FilePart(msgspec.Struct):
    """What a process found in its part of a file."""

    runs: list[SortedRun]
    marks: list[SortedRun]
    names: list[str]
    threads: list[tuple[str, int]]
    left_out: dict[str, int]
    processes: dict[str, str]
    lines: dict[int, str]
    head: dict[str, Any]
    truncated: bool
    unreadable: int
    passed_over: bool


@dataclass
class _Reading:
    """A text on its way into two files: spans, and marks that become spans later."""

    text: EventText
    spans: Spill
    marks: Spill
    source: EventTables = field(default_factory=EventTables)
    tell: Callable[[int], None] = lambda position: None
    """Told how many bytes of the text have been read."""

    def __enter__(self) -> _Reading:
        self.spans.__enter__()
        self.marks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.spans.__exit__(*error)
        self.marks.__exit__(*error)

    def spill(self, until: int | None = None) -> None:
        for events in self.text.pieces(until):
            spans, marks = raw_events(events, self.source)
            self.spans.add(spans)
            self.marks.add(marks)
            self.tell(self.text.position)


def _open_reading(stream: IO[bytes], path: Path, tell: Callable[[int], None] = lambda position: None) -> _Reading:
    text = EventText(stream, decode_events, decode_event)
    return _Reading(text, Spill(path), Spill(path.with_name(f"{path.name}-marks")), tell=tell)


def read_kineto(path: Path, directory: Path, number: int, say: Say, alone: bool = False) -> RankEvents:
    """Spill the events of one trace into `directory`; `number` makes names of files that no other trace has.

    A large plain file is read with the help of a second process, unless `alone`. A file that ends in the middle gives
    what it has. Raises SondaError when it is no trace or cannot be read.
    """
    say(f"reading {path.name}")
    size = path.stat().st_size
    with open_text(path) as stream:
        packed = is_packed(path)
        helped = not alone and not packed
        whole = size // 2 if helped and size >= SHARED_FROM else size

        def report_position(position: int) -> None:
            of = "" if packed else f" of {max(position, whole) >> 20:,}"
            say(f"reading {path.name}, {position >> 20:,}{of} MiB")

        reading = _open_reading(stream, directory / f"events-{number}", report_position)
        spills, marks = [reading.spans], [reading.marks]
        try:
            reading.text.read_head()
            with reading:
                # Started last: whatever fails from here on ends it.
                helper = _Helper.start(path, size, directory / f"events-{number}-b") if helped else None
                theirs = None if helper is None else _read_with_helper(reading, helper)
                if theirs is None:
                    reading.spill()
                else:
                    spills.append(theirs[0])
                    marks.append(theirs[1])
        except (SondaError, OSError) as error:
            cause = error.cause if isinstance(error, SondaError) else error.strerror or error
            raise SondaError(f"{path.name}: {cause}", getattr(error, "remedy", "")) from None
    text, source = reading.text, reading.source
    source.leave_out("cannot be read", text.unreadable)
    notes = [PASSED_OVER] if text.passed_over else []
    return RankEvents(path.name, spills, source, text.head, _rank(text.head), text.truncated, marks=marks, notes=notes)


def _rank(head: dict[str, Any]) -> int | None:
    about = head.get("distributedInfo")
    rank = about.get("rank") if isinstance(about, dict) else None
    return rank if isinstance(rank, int) and 0 <= rank < 1 << 31 else None


def _read_with_helper(reading: _Reading, helper: _Helper) -> tuple[Spill, Spill] | None:
    """Read up to where the helper began; that place is right only if whole events end there.

    Returns what the helper spilled, or None where it must be read by this process.
    """
    text, source = reading.text, reading.source
    with helper:
        reading.spill(helper.begin)
        if not text.at_end_of_event or text.position != helper.begin:
            return None
        part = helper.result()
    if part is None:
        text.skip_to(helper.begin)
        return None
    spans, marks = Spill(helper.spill), Spill(helper.spill.with_name(f"{helper.spill.name}-marks"))
    spans.runs, marks.runs = part.runs, part.marks
    names = np.array([source.names[name] for name in part.names], dtype=np.int32)
    threads = np.array([source.places[thread] for thread in part.threads], dtype=np.int32)
    for spill in (spans, marks):
        spill.names, spill.threads = names, threads
    source.processes |= part.processes
    source.lines |= {int(threads[line]): name for line, name in part.lines.items()}
    for reason, count in part.left_out.items():
        source.leave_out(reason, count)
    text.head.update({key: value for key, value in part.head.items() if key not in text.head})
    text.truncated = text.truncated or part.truncated
    text.unreadable += part.unreadable
    text.passed_over = text.passed_over or part.passed_over
    return spans, marks


@dataclass
class _Helper:
    """A process that reads the second half of a plain file."""

    path: Path
    begin: int
    spill: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, path: Path, size: int, spill: Path) -> _Helper | None:
        """None where the file is small, the machine has one core, or no event begins near the middle."""
        if size < SHARED_FROM or len(os.sched_getaffinity(0)) < 2:
            return None
        with open(path, "rb") as file:
            file.seek(size // 2)
            at = likely_begin(file.read(1 << 20))
        if at < 0:
            return None
        begin = size // 2 + at
        command = [sys.executable, "-P", "-m", "sonda.imports.kineto.reader", str(path), str(begin), str(spill)]
        return cls(
            path,
            begin,
            spill,
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL),
        )

    def __enter__(self) -> _Helper:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def result(self) -> FilePart | None:
        """What it found; None where it failed."""
        output = self.process.communicate()[0]
        return msgspec.json.decode(output, type=FilePart) if self.process.returncode == 0 else None


def read_part(path: Path, begin: int, spill_path: Path) -> FilePart:
    """Spill the events of a plain trace from the byte where one begins to the end."""
    with open(path, "rb") as stream:
        stream.seek(begin)
        with _open_reading(stream, spill_path) as reading:
            reading.spill()
    text, source = reading.text, reading.source
    return FilePart(
        reading.spans.runs, reading.marks.runs, list(source.names), source.threads, source.left_out, source.processes,
        source.lines, text.head, text.truncated, text.unreadable, text.passed_over,
    )  # fmt: skip


def main(words: Sequence[str]) -> None:
    part = read_part(Path(words[0]), int(words[1]), Path(words[2]))
    sys.stdout.buffer.write(msgspec.json.encode(part))


if __name__ == "__main__":
    main(sys.argv[1:])
