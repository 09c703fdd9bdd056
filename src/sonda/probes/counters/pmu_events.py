"""Events of a PMU: a name, a raw code or a description in the kernel's own syntax becomes the code for the kernel.

An explicit code goes first, then the names in `/sys`, then the names that every PMU has. A processor with two kinds of
core has two PMUs, each with a type number of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from sonda.frameworks.collector.counters.perf_event import TYPE_HARDWARE, Event
from sonda.probes.kernel_files import read_int, read_text
from sonda.record.errors import SondaError

DEVICES = Path("sys/bus/event_source/devices")
CORE_PMUS = ("cpu", "cpu_core", "cpu_atom", "armv8_pmuv3*", "armv8_cortex*", "armv9_*")
GENERIC = {
    "cycles": 0, "instructions": 1, "cache-references": 2, "cache-misses": 3, "branches": 4, "branch-instructions": 4,
    "branch-misses": 5, "stalled-cycles-frontend": 7, "stalled-cycles-backend": 8, "ref-cycles": 9,
}  # fmt: skip
"""PERF_COUNT_HW_*: Linux include/uapi/linux/perf_event.h."""
TYPE_SHIFT = 32
"""Where the PMU's type stands in the code of a generic event, on a processor with several kinds of core."""
RAW = re.compile(r"r([0-9a-fA-F]+)")
WRAPPED = re.compile(r"([\w.-]+)/(.*)/")


@dataclass(frozen=True)
class Pmu:
    """A PMU of the processor's cores."""

    name: str
    type: int
    formats: dict[str, str] = field(default_factory=dict)
    """Where each term of an event goes: `config:0-7,32-35`."""
    events: dict[str, str] = field(default_factory=dict)
    """What the kernel names: `event=0x3c`."""
    slots: int | None = None
    """Arm: slots a cycle."""


def core_pmus(root: Path = Path("/")) -> list[Pmu]:
    """The PMUs of the cores, those of the larger cores first; none where there is no PMU."""
    pmus: dict[str, Pmu] = {}
    for pattern in CORE_PMUS:
        for folder in sorted((root / DEVICES).glob(pattern)):
            number = read_int(folder / "type")
            if number is not None:
                slots = read_text(folder / "caps/slots")
                pmus[folder.name] = Pmu(
                    folder.name, number, _read_texts(folder / "format"), _read_texts(folder / "events"),
                    int(slots, 0) if slots and re.fullmatch(r"0x[0-9a-fA-F]+|\d+", slots) else None,
                )  # fmt: skip
    return list(pmus.values())


def _read_texts(folder: Path) -> dict[str, str]:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return {}
    # `.scale`, `.unit` and `.snapshot` describe an event and are none.
    texts = {name: read_text(folder / name) for name in names if "." not in name}
    return {name: text for name, text in texts.items() if text is not None}


def event_quantity(name: str) -> str:
    """An event's name as a column has it: `L1-dcache-load-misses` is `l1_dcache_load_misses`."""
    return re.sub(r"\W", "_", name).lower()


def resolve_event(text: str, pmu: Pmu, hybrid: bool = False) -> Event:
    """The event that `r01c2`, `cycles`, `topdown-retiring`, `event=0x3c,umask=0x1` or `cpu/event=0x3c/` names here.

    `hybrid` says that the PMU is one of several. Raises SondaError for an event that the PMU does not know.
    """
    wrapped = WRAPPED.fullmatch(text)
    if wrapped and wrapped[1] != pmu.name:
        raise SondaError(f"event {text!r} is of the PMU {wrapped[1]}, not of {pmu.name}", "see /sys/bus/event_source")
    inner = wrapped[2] if wrapped else text
    raw = RAW.fullmatch(inner)
    if raw:
        return Event(event_quantity(text), pmu.type, int(raw[1], 16))
    # A name of this PMU goes before one of all PMUs.
    if inner in pmu.events:
        return _encode_terms(event_quantity(text), pmu.events[inner], pmu)
    if inner in GENERIC:
        extended = pmu.type << TYPE_SHIFT if hybrid else 0
        return Event(event_quantity(text), TYPE_HARDWARE, GENERIC[inner] | extended)
    if "=" in inner:
        return _encode_terms(event_quantity(text), inner, pmu)
    raise SondaError(f"the PMU {pmu.name} has no event {text!r}", "give its code: r followed by hexadecimal digits")


def _encode_terms(name: str, text: str, pmu: Pmu) -> Event:
    words = {"config": 0, "config1": 0, "config2": 0}
    for term in text.split(","):
        key, equals, value = (part.strip() for part in term.partition("="))
        try:
            number = int(value, 0) if equals else 1
        except ValueError:
            raise SondaError(f"event {name!r}: {term!r} has no number", "write it as event=0x3c,umask=0x1") from None
        if key in words:
            words[key] |= number
            continue
        if key not in pmu.formats:
            raise SondaError(
                f"event {name!r}: the PMU {pmu.name} knows no {key!r}",
                f"it knows {', '.join(pmu.formats) or 'nothing'}",
            )
        where, bits = parse_format(pmu.formats[key])
        if number >> len(bits):
            raise SondaError(f"event {name!r}: {key}={number:#x} is too large", f"{key} has {len(bits)} bits")
        for position, bit in enumerate(bits):
            words[where] |= (number >> position & 1) << bit
    return Event(name, pmu.type, words["config"], words["config1"], words["config2"])


def parse_format(text: str) -> tuple[str, list[int]]:
    """`config:0-7,32-35` is ("config", [0, …, 7, 32, …, 35]). Raises SondaError for anything else."""
    match = re.fullmatch(r"(config[12]?):(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)", text)
    if not match:
        raise SondaError(f"{text!r} is not a format of a PMU", "see /sys/bus/event_source/devices/cpu/format")
    bits: list[int] = []
    for part in match[2].split(","):
        first, _, last = part.partition("-")
        bits += range(int(first), int(last or first) + 1)
    if any(bit > 63 for bit in bits):
        raise SondaError(f"{text!r} is not a format of a PMU", "bits go from 0 to 63")
    return match[1], bits
