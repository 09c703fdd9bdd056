"""PAPI: the distribution's libpapi through ctypes, a second source for counts where it is installed.

PAPI counts a thread; it counts a command by attaching to it. Before it attaches, it tries to count instructions:
without a PMU it therefore counts the calling thread only. Constants: PAPI's papi.h, the same from version 6 to 7.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sonda.probes.counters.command_counter import CountedCommand, EventCount, StoppedCommand
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState

LIBRARIES = ("libpapi.so.7.2", "libpapi.so.7.1", "libpapi.so.7.0", "libpapi.so.6.0", "libpapi.so.7", "libpapi.so")
VERSIONS = tuple(major << 24 | minor << 16 for major, minor in ((7, 2), (7, 1), (7, 0), (6, 0)))
OK = 0
NO_EVENT_SET = -1
FORBIDDEN = -15
INHERIT, INHERIT_ALL = 28, 1
USER, KERNEL, OTHER, SUPERVISOR = 1, 2, 4, 8
OTHERS = ("PAPI_attach", "PAPI_set_opt")
"""What PAPI needs to count another process."""
CORES = 0
"""The number of the component that counts the processor's and the kernel's events."""
NAMES = {
    "task-clock": "perf::TASK-CLOCK", "page-faults": "perf::PAGE-FAULTS",
    "context-switches": "perf::CONTEXT-SWITCHES", "cpu-migrations": "perf::CPU-MIGRATIONS",
    "instructions": "PAPI_TOT_INS", "cycles": "PAPI_TOT_CYC", "branches": "PAPI_BR_INS", "branch-misses": "PAPI_BR_MSP",
}  # fmt: skip
"""PAPI's names of perf's events; others are given to PAPI as they are."""


class _Inherit(ctypes.Structure):
    """PAPI_inherit_option_t, in a union of which the rest is room."""

    _fields_ = [("eventset", ctypes.c_int), ("inherit", ctypes.c_int), ("room", ctypes.c_char * 4096)]


class Papi:
    """Counts with PAPI, where the library is."""

    name = "papi"

    def __init__(self, libraries: Sequence[str] = LIBRARIES) -> None:
        self._libraries = libraries
        self._library: Any = None
        self._version = 0

    def state(self) -> ProbeState:
        try:
            # PAPI loads on a processor that its libpfm does not know, and then has no event at all.
            counters, _, _ = self._event_set(("task-clock",), 0)
        except SondaError as error:
            return ProbeState(self.name, "missing", error.cause, error.remedy)
        self._load().PAPI_cleanup_eventset(counters)
        return ProbeState(self.name, "ok", f"version {self._version >> 24}.{self._version >> 16 & 0xFF}")

    def count(
        self, command: Sequence[str], events: Sequence[str], interval: float = 0.0,
        environment: Mapping[str, str] | None = None,
    ) -> CountedCommand:  # fmt: skip
        """See `CommandCounter.count`; PAPI gives no series."""
        if interval:
            raise SondaError("PAPI gives no series over time", "leave the interval out")
        library = self._load()
        child = StoppedCommand(command, environment)
        started = False
        try:
            counters, added, missing = self._event_set(events, child.pid)
            self._call("PAPI_start", counters)
            started = True
            child.start()
            code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
            values = (ctypes.c_longlong * len(added))()
            self._call("PAPI_stop", counters, values)
        finally:
            if not started:
                child.discard()
        library.PAPI_cleanup_eventset(counters)
        return CountedCommand(
            code, {name: EventCount(float(value)) for name, value in zip(added, values, strict=True)}, [], missing
        )

    def count_in_thread(self, work: Callable[[], object], events: Sequence[str]) -> dict[str, EventCount]:
        """Count the calling thread while it does some work. Raises SondaError where nothing can be counted."""
        library = self._load()
        counters, added, _ = self._event_set(events, 0)
        values = (ctypes.c_longlong * len(added))()
        self._call("PAPI_start", counters)
        try:
            work()
        finally:
            self._call("PAPI_stop", counters, values)
            library.PAPI_cleanup_eventset(counters)
        return {name: EventCount(float(value)) for name, value in zip(added, values, strict=True)}

    def _event_set(self, events: Sequence[str], process: int) -> tuple[ctypes.c_int, list[str], dict[str, str]]:
        """Make a set of events on a process (0: the calling thread).

        Gives its number, the events that it has, and the reason for each that it does not have. Raises SondaError
        where it has none.
        """
        library = self._load()
        number = ctypes.c_int(NO_EVENT_SET)
        self._call("PAPI_create_eventset", ctypes.byref(number))
        if process:
            self._call("PAPI_assign_eventset_component", number, ctypes.c_int(CORES))
            option = _Inherit(number.value, INHERIT_ALL)
            self._call("PAPI_set_opt", ctypes.c_int(INHERIT), ctypes.byref(option))
            self._call("PAPI_attach", number, ctypes.c_ulong(process))
        added: list[str] = []
        missing: dict[str, str] = {}
        for name in events:
            code = library.PAPI_add_named_event(number, NAMES.get(name, name).encode())
            if code == OK:
                added.append(name)
            else:
                missing[name] = self._reason(code)
        if not added:
            raise SondaError(
                f"PAPI counts none of {', '.join(events)}: {missing[events[0]]}",
                "see papi_component_avail, or use perf-stat",
            )
        return number, added, missing

    def _load(self) -> Any:
        if self._library is not None:
            return self._library
        for name in self._libraries:
            try:
                library: Any = ctypes.CDLL(name)
            except OSError:
                continue
            for version in VERSIONS:
                if library.PAPI_library_init(ctypes.c_int(version)) == version:
                    library.PAPI_strerror.restype = ctypes.c_char_p
                    # The kernel's own work counts, as in the other sources.
                    library.PAPI_set_domain(ctypes.c_int(USER | KERNEL | OTHER | SUPERVISOR))
                    self._library, self._version = library, version
                    return library
            raise SondaError(f"{name} is of another version than 6.0 to 7.2", "install libpapi of the distribution")
        raise SondaError("libpapi is not installed", "apt install libpapi7.0 (Debian 12)")

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(*arguments)
        if code == OK:
            return
        failure = f"{function}: {self._reason(code)}"
        if function in OTHERS and code == FORBIDDEN:
            raise SondaError(f"PAPI may not count another process ({failure})",
                             "run as root, or set sysctl kernel.perf_event_paranoid=1")  # fmt: skip
        if function in OTHERS:
            raise SondaError(
                f"without a PMU, PAPI counts the calling thread only ({failure})",
                "use perf-stat, or a machine with a PMU",
            )
        raise SondaError(failure, "see papi_avail")

    def _reason(self, code: int) -> str:
        text = self._library.PAPI_strerror(ctypes.c_int(code))
        return text.decode(errors="replace").lower() if text else f"PAPI error {code}"
