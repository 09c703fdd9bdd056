"""Every instrument by the name that `--probe` has for it, and those of a run in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sonda.record.errors import SondaError, nearest
from sonda.record.plugins import PROBES, plugin_entries
from sonda.targets.instrument import Instrument, Launcher
from sonda.targets.instruments import callgrind, energy, ncu
from sonda.targets.instruments.callgrind import CallgrindInstrument, sizes_of
from sonda.targets.instruments.counters import ALWAYS, PMU, CounterInstrument
from sonda.targets.instruments.energy import ENERGY, MODEL, EnergyInstrument
from sonda.targets.instruments.ncu import NcuInstrument, settings_of
from sonda.targets.instruments.plugins import PluginInstrument
from sonda.targets.instruments.second_sources import SECOND, SecondSources
from sonda.targets.job import ProbeWord, split_probes

ORDER: tuple[type[Instrument], ...] = (
    NcuInstrument, CallgrindInstrument, CounterInstrument, SecondSources, EnergyInstrument, PluginInstrument,
)  # fmt: skip
"""In which the instruments of a run are prepared, entered and collected. Callgrind adds rows, so energy, which is
spread over the rows, comes behind it; second sources count what the counters were asked for."""

SONDAS: dict[str, type[Instrument]] = {
    PMU: CounterInstrument,
    ALWAYS: CounterInstrument,
    callgrind.PROBE: CallgrindInstrument,
    ncu.PROBE: NcuInstrument,
    ENERGY: EnergyInstrument,
    MODEL: EnergyInstrument,
    **dict.fromkeys(SECOND, SecondSources),
}
"""Probes of Sonda's own."""


def probe_names() -> list[str]:
    """Probes that can be asked for: Sonda's, then those that other packages add."""
    return [*SONDAS, *(name for name in plugin_entries(PROBES) if name not in SONDAS)]


def instruments_for(probes: str | Sequence[str], launcher: Launcher) -> list[Instrument]:
    """The instruments that these probes ask for, in their order.

    Raises SondaError for a probe that is none, for an option that is none, and for one that the launcher cannot serve.
    """
    words = split_probes(probes)
    asked: dict[type[Instrument], list[ProbeWord]] = {}
    for word in words:
        if word.name not in probe_names():
            raise SondaError(f"there is no probe {word.name!r}", nearest(word.name, probe_names()))
        instrument = SONDAS.get(word.name, PluginInstrument)
        if not instrument.needs <= launcher.offers:
            raise launcher.refusal(word.text)
        asked.setdefault(instrument, []).append(word)
    counters = CounterInstrument(probes)
    make: dict[type[Instrument], Callable[[list[ProbeWord]], Instrument]] = {
        NcuInstrument: lambda own: NcuInstrument(settings_of(own[0])),
        CallgrindInstrument: lambda own: CallgrindInstrument(sizes_of(own[0])),
        CounterInstrument: lambda own: counters,
        SecondSources: lambda own: SecondSources([word.name for word in own], counters),
        EnergyInstrument: lambda own: EnergyInstrument(energy.asked(probes) or energy.Asked()),
        PluginInstrument: lambda own: PluginInstrument(probes),
    }
    return [make[instrument](asked[instrument]) for instrument in ORDER if instrument in asked]
