"""Every probe that `--probe` can name, and the instruments of a run in their order.

Help and completion read this list too, so nothing that takes long is imported before a probe is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from sonda.record.errors import SondaError, nearest
from sonda.record.plugins import PROBES, call_entry, import_entry, plugin_entries
from sonda.targets.job import ProbeWord, split_probes

if TYPE_CHECKING:
    from sonda.record.protocols import Probe
    from sonda.targets.instrument import Instrument, Launcher


class BuiltInProbe(NamedTuple):
    """A probe of Sonda's own."""

    instrument: str
    """`module:class` in this folder: a class of `Instrument` that also has `from_words`, which makes one of all words
    of `--probe` that name it."""
    help: str
    """What `--help` says of it."""


BUILT_IN = {
    "ncu": BuiltInProbe("ncu:NcuInstrument", "a GPU's kernels, by Nsight Compute"),
    "callgrind": BuiltInProbe(
        "callgrind:CallgrindInstrument",
        "a step modelled by valgrind; callgrind:512KiB+2MiB for caches of other sizes",
    ),
    "pmu": BuiltInProbe("counters:CounterInstrument", "hardware counters; pmu:children+no-layers+EVENT"),
    "os": BuiltInProbe("counters:CounterInstrument", "shows by phase what the system counts anyway"),
    "perf-stat": BuiltInProbe("second_sources:SecondSourcesInstrument", "the whole program once more, by perf"),
    "papi": BuiltInProbe("second_sources:SecondSourcesInstrument", "the whole program once more, by PAPI"),
    "energy": BuiltInProbe("energy:EnergyInstrument", "joules; energy:10ms+idle=0"),
    "energy-model": BuiltInProbe(
        "energy:EnergyInstrument", "an estimate without a sensor; energy-model:cpu=20..95"
    ),
}  # fmt: skip
"""Probes by name. In this order the instruments of a run are prepared, entered and collected; those of other packages
come last. Callgrind adds rows, so energy, which is spread over rows, comes behind it."""


def probe_names() -> list[str]:
    """Probes that can be asked for: Sonda's, then those that other packages add."""
    return [*BUILT_IN, *(name for name in plugin_entries(PROBES) if name not in BUILT_IN)]


def describe_probes(names: Sequence[str]) -> str:
    """These probes of Sonda's own, each with its help: `energy (joules; energy:10ms+idle=0), …`."""
    return ", ".join(f"{name} ({BUILT_IN[name].help})" for name in names)


def needs_of(name: str) -> frozenset[str]:
    """What a probe needs of a launcher; where its package cannot be imported, something that none offers."""
    if name in BUILT_IN:
        return frozenset(_import_instrument(BUILT_IN[name]).needs)
    from sonda.targets.instruments.plugins import PluginInstrument

    try:
        made_by: Any = import_entry(plugin_entries(PROBES)[name])
    except SondaError:
        return frozenset({"its package"})
    return frozenset(getattr(made_by, "needs", PluginInstrument.needs))


def _import_instrument(probe: BuiltInProbe) -> Any:
    module, _, name = probe.instrument.partition(":")
    return getattr(import_module(f"sonda.targets.instruments.{module}"), name)


def instruments_for(probes: str | Sequence[str], launcher: Launcher) -> list[Instrument]:
    """The instruments that these probes ask for, in the order of `BUILT_IN`.

    Raises SondaError for a probe that is unknown or cannot be made, and for one whose needs the launcher lacks.
    """
    from sonda.targets.instruments.plugins import PluginInstrument

    words_by_instrument: dict[str, list[ProbeWord]] = {}
    added: list[tuple[str, Probe]] = []
    strangers: list[Instrument] = []
    for word in split_probes(probes):
        if word.name not in probe_names():
            raise SondaError(f"there is no probe {word.name!r}", nearest(word.name, probe_names()))
        if word.name in BUILT_IN:
            built_in = BUILT_IN[word.name]
            words_by_instrument.setdefault(built_in.instrument, []).append(word)
            instrument = _import_instrument(built_in)
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
    in_order = {probe.instrument: probe for probe in BUILT_IN.values()}
    instruments = [_import_instrument(probe).from_words(words_by_instrument[instrument])
                   for instrument, probe in in_order.items() if instrument in words_by_instrument]  # fmt: skip
    return [*instruments, *([PluginInstrument(added)] if added else []), *strangers]
