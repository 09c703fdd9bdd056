"""Raw events: what every reader of traces makes of its file, before anything is known about its neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

import numpy as np

OP, CALL, STEP, LAYER, COMPILE, ANNOTATION, WAIT, KERNEL, COPY, COLLECTIVE = range(10)
"""What an event is. A call is one of the device's programming interface, such as a launch; a wait says more about such
a call: which stream it makes wait, and for what."""
KIND_WORDS = ("op", "step", "layer", "kernel", "copy", "collective", "compile", "annotation")
KIND_CODES = np.array([0, 0, 1, 2, 6, 7, 0, 3, 4, 5], dtype=np.int32)
"""Of each of them the word in a run: a call is an operation like others, and so is a wait."""
EARLIEST, LATEST = -(1 << 57), (1 << 63) - (1 << 57) - 1
"""ns that a time may be; the difference of any two of them is a 64-bit number, and 2^53 µs is among them."""
FIRST_ON_DEVICE = KERNEL
ABSENT = -1

RAW = np.dtype(
    [
        ("start", np.int64), ("duration", np.int64), ("correlation", np.int64), ("external", np.int64),
        ("bytes", np.int64), ("name", np.int32), ("thread", np.int32), ("stream", np.int32), ("device", np.int16),
        ("kind", np.int8),
    ]
)  # fmt: skip
"""`start` in ns on the file's own clock; `name` and `thread` are places in the tables of a `Source`; -1 is absent. Of a
wait `bytes` is the stream that is waited for and `external` the correlation id of the call that recorded the event. Of
a collective, and of the operation that launches it, `bytes` says its group and its number there, as `pack_group`
writes them."""
NUMBER_BITS = 40
"""Of a collective's number in its group; the rest says which name is the group's."""


def pack_group(name: int, number: int) -> int:
    """Place of a group's label among the names, and a collective's number in the group or -1, below all sizes."""
    return -2 - (name << NUMBER_BITS | number + 1 if 0 <= number < (1 << NUMBER_BITS) - 1 else name << NUMBER_BITS)


def unpack_groups(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of `bytes`: places of labels and numbers, -1 where there are none."""
    packed = np.where(sizes < ABSENT, -2 - sizes, 0)
    here = sizes < ABSENT
    return np.where(here, packed >> NUMBER_BITS, -1), np.where(here, (packed & (1 << NUMBER_BITS) - 1) - 1, -1)


class WordNumbers(dict[str, int]):
    """Words by number: a word that is asked for the first time gets the next."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


class ThreadNumbers(dict[tuple[int | str, int | str], int]):
    """Processes and threads by number, as a file writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.numbered: dict[tuple[str, int], int] = {}
        """The same with threads as whole numbers."""

    def __missing__(self, place: tuple[int | str, int | str]) -> int:
        process, thread = place
        number = thread if isinstance(thread, int) and abs(thread) < 1 << 62 else _thread_number(str(thread))
        self[place] = index = self.numbered.setdefault((str(process), number), len(self.numbered))
        return index


@dataclass
class EventTables:
    """The words that raw events refer to by number, and what was left out on the way."""

    names: WordNumbers = field(default_factory=WordNumbers)
    places: ThreadNumbers = field(default_factory=ThreadNumbers)
    left_out: dict[str, int] = field(default_factory=dict)
    """Events by the reason why they are not kept."""
    processes: dict[str, str] = field(default_factory=dict)
    """Names of processes, where the file gives them."""
    lines: dict[int, str] = field(default_factory=dict)
    """Names of threads, by their number in `places`."""
    _collectives: list[bool] = field(default_factory=list)

    def leave_out(self, reason: str, count: int) -> None:
        if count:
            self.left_out[reason] = self.left_out.get(reason, 0) + count

    @property
    def threads(self) -> list[tuple[str, int]]:
        """Process and thread of every number."""
        return list(self.places.numbered)

    def collectives(self) -> np.ndarray:
        """For every name so far, whether it is a kernel's that communicates."""
        self._collectives += [is_collective(name) for name in islice(self.names, len(self._collectives), None)]
        return np.array(self._collectives, dtype=bool)


def is_collective(name: str) -> bool:
    """Whether a kernel communicates: NCCL and RCCL name theirs `ncclKernel…`, `ncclDevKernel…` and the like."""
    return name.startswith("nccl") and "Kernel" in name


def _thread_number(word: str) -> int:
    try:
        return int(word[:18])
    except ValueError:
        # Any number will do, the same for the same word in every process: a thread has to be told from others only.
        return -1 - sum(byte << (8 * place) for place, byte in enumerate(word.encode("utf-8", "replace")[:6]))
