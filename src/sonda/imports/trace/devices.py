"""Devices in traces that say by the names of processes and threads what runs where, as JAX and TensorFlow do.

A process named /device:GPU:0 is that device, its threads named Stream #14 are streams. Its other threads say again what
the streams say, by module or by step; they are left out, and so are devices whose lines are not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from sonda.imports.trace.raw_events import CALL, COLLECTIVE, COPY, KERNEL, OP, EventTables

DEVICE = re.compile(r"/device:(\w+):(\d{1,4})")
STREAM = re.compile(r"Stream #(\d{1,9})")
COPIES = re.compile(r"Mem(?:cpy|set)", re.IGNORECASE)
HOST, REPEATED = -1, -2


@dataclass
class DeviceLines:
    """Where every thread of a trace really is."""

    source: EventTables
    device: np.ndarray
    """By thread: the number of a device, or one of the words above."""
    stream: np.ndarray

    @classmethod
    def from_tables(cls, source: EventTables) -> DeviceLines | None:
        """None where no process is named as a device."""
        processes = {process: match for process, name in source.processes.items() if (match := DEVICE.search(name))}
        if not processes:
            return None
        threads = source.threads
        device = np.full(len(threads), HOST, dtype=np.int16)
        stream = np.full(len(threads), HOST, dtype=np.int32)
        for place, (process, _) in enumerate(threads):
            if process in processes:
                line = STREAM.match(source.lines.get(place, "")) if processes[process][1] == "GPU" else None
                device[place] = int(processes[process][2]) if line else REPEATED
                stream[place] = int(line[1]) if line else HOST
        return cls(source, device, stream)

    def count_kept(self, rows: np.ndarray) -> int:
        """How many of these events `place` will keep."""
        return int((self.device[rows["thread"]] != REPEATED).sum())

    def place(self, rows: np.ndarray) -> np.ndarray:
        """The same events, those of devices as activities. Events that only repeat others are left out and counted."""
        where = self.device[rows["thread"]]
        self.source.leave_out("are on lines of a device that are no streams", int((where == REPEATED).sum()))
        rows, where = rows[where != REPEATED].copy(), where[where != REPEATED]
        mine = np.flatnonzero((where >= 0) & np.isin(rows["kind"], (OP, CALL)))
        names = list(self.source.names)
        copies = {name for name in np.unique(rows["name"][mine]).tolist() if COPIES.match(names[name])}
        rows["kind"][mine] = np.where(np.isin(rows["name"][mine], list(copies)), COPY, KERNEL)
        rows["kind"][mine[self.source.collectives()[rows["name"][mine]]]] = COLLECTIVE
        rows["device"][mine] = where[mine]
        rows["stream"][mine] = self.stream[rows["thread"][mine]]
        return rows
