"""Every instrument by the name that `--probe` has for it, and those of a run in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sonda.record.errors import SondaError, nearest
from sonda.record.plugins import PROBES, call_entry, import_entry, plugin_entries
from sonda.record.protocols import Probe
from sonda.targets.instrument import Instrument, Launcher
from sonda.targets.instruments import callgrind, energy, ncu
from sonda.targets.instruments.callgrind import CallgrindInstrument, parse_cache_sizes
from sonda.targets.instruments.counters import OS, PMU, CounterInstrument
from sonda.targets.instruments.energy import ENERGY, MODEL, EnergyInstrument
from sonda.targets.instruments.ncu import NcuInstrument, parse_ncu_settings
from sonda.targets.instruments.plugins import PluginInstrument
from sonda.targets.instruments.second_sources import SOURCES, SecondSourcesInstrument
from sonda.targets.job import ProbeWord, split_probes

ORDER: tuple[type[Instrument], ...] = (
    NcuInstrument, CallgrindInstrument, CounterInstrument, SecondSourcesInstrument, EnergyInstrument,
)  # fmt: skip
"""In which the instruments of a run are prepared, entered and collected; those of other packages come last. Callgrind
adds rows, so energy, which is spread over rows, comes behind it; second sources count what counters were asked for."""

BUILT_IN: dict[str, type[Instrument]] = {
    PMU: CounterInstrument,
    OS: CounterInstrument,
    callgrind.PROBE: CallgrindInstrument,
    ncu.PROBE: NcuInstrument,
    ENERGY: EnergyInstrument,
    MODEL: EnergyInstrument,
    **dict.fromkeys(SOURCES, SecondSourcesInstrument),
}
"""Probes of Sonda's own."""


def probe_names() -> list[str]:
    """Probes that can be asked for: Sonda's, then those that other packages add."""
    return [*BUILT_IN, *(name for name in plugin_entries(PROBES) if name not in BUILT_IN)]


def needs_of(name: str) -> frozenset[str]:
    """What a probe needs of a launcher; where its package cannot be imported, something that none offers."""
    if name in BUILT_IN:
        return BUILT_IN[name].needs
    try:
        made_by: Any = import_entry(plugin_entries(PROBES)[name])
    except SondaError:
        return frozenset({"its package"})
    return frozenset(getattr(made_by, "needs", PluginInstrument.needs))


def instruments_for(probes: str | Sequence[str], launcher: Launcher) -> list[Instrument]:
    """The instruments that these probes ask for, in the order of `ORDER`.

    Raises SondaError for a probe that is unknown or cannot be made, and for one whose needs the launcher lacks.
    """
    words_by_kind: dict[type[Instrument], list[ProbeWord]] = {}
    added: list[tuple[str, Probe]] = []
    strangers: list[Instrument] = []
    for word in split_probes(probes):
        if word.name not in probe_names():
            raise SondaError(f"there is no probe {word.name!r}", nearest(word.name, probe_names()))
        if word.name in BUILT_IN:
            instrument: Any = BUILT_IN[word.name]
            words_by_kind.setdefault(instrument, []).append(word)
        else:
            instrument = call_entry(plugin_entries(PROBES)[word.name], word.options)
            if hasattr(instrument, "collect"):
                strangers.append(instrument)
            else:
                added.append((word.name, instrument))
                instrument = PluginInstrument
        if not instrument.needs <= launcher.offers:
            readable = ", ".join(name for name in probe_names() if needs_of(name) <= launcher.offers)
            raise SondaError(
                f"--probe {word.text} cannot be read of a {launcher.kind} run{launcher.where}",
                f"it can be read by {readable}" if readable else "leave it out: nothing of it is measured",
            )
    counters = CounterInstrument(probes)
    make: dict[type[Instrument], Callable[[list[ProbeWord]], Instrument]] = {
        NcuInstrument: lambda words: NcuInstrument(parse_ncu_settings(words[0])),
        CallgrindInstrument: lambda words: CallgrindInstrument(parse_cache_sizes(words[0])),
        CounterInstrument: lambda words: counters,
        SecondSourcesInstrument: lambda words: SecondSourcesInstrument([word.name for word in words], counters),
        EnergyInstrument: lambda words: EnergyInstrument(energy.parse_energy_probes(probes) or energy.EnergySettings()),
    }
    instruments = [make[kind](words_by_kind[kind]) for kind in ORDER if kind in words_by_kind]
    return [*instruments, *([PluginInstrument(added)] if added else []), *strangers]
