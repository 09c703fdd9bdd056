"""Helpers of `test_perf_event.py` that other tests use too."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonda.frameworks.collector.counters.perf_event import (
    SOFTWARE,
    TYPE_SOFTWARE,
    Event,
    EventGroup,
    PerfEventError,
)

FAULTS = Event("page_faults", TYPE_SOFTWARE, SOFTWARE["page-faults"], kernel=True)


def huge_pages_always() -> bool:
    try:
        return "[always]" in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return False


def can_count() -> bool:
    try:
        EventGroup([FAULTS]).close()
    except PerfEventError:
        return False
    return not huge_pages_always()


needs_kernel = pytest.mark.skipif(
    not can_count(), reason="perf_event_open is refused here, or huge pages are always on"
)


PAGES = 2000


def touch(pages: int = PAGES) -> None:
    """Fault in fresh pages, exactly so many: memory that is mapped for this and given back."""
    import mmap

    memory = mmap.mmap(-1, pages * 4096)
    for page in range(pages):
        memory[page * 4096] = 1
    memory.close()


@pytest.fixture
def settled() -> Iterator[None]:
    """A process that has forked copies every page that it writes to again, and each copy is a fault: the collector
    writes to its objects before, and rests meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def descriptors() -> set[str]:
    """What is open, without what an earlier test left to the garbage collector."""
    gc.collect()
    return set(os.listdir("/proc/self/fd"))
