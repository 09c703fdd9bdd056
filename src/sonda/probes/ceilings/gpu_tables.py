"""GPU tables: what a graphics processor can do at most, from its maker's papers, to draw beside measured ceilings.

`gpus.toml` says where every figure comes from. A card is found by the name that the driver gives it, and its number of
SMs must be that of the table: some names were sold with several numbers, and a part of a card has the name of the
whole. For an unknown card figures are computed from the driver's facts, and the others are missing with the reason.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import msgspec

from sonda.probes.machine.gpu import GpuDevice
from sonda.record.errors import SondaError

PATH = Path(__file__).parent / "gpus.toml"
BRANDS = re.compile(r"\b(?:nvidia|tesla|quadro|geforce|graphics device)\b", re.IGNORECASE)
ON_CORES = ("float32", "float64")
AT_BOOST = (*ON_CORES, "float64_tensor")
"""Peaks at the boost clock; the others at the tensor cores' clock, where a card has one of its own."""


class TheoreticalFigure(msgspec.Struct, frozen=True):
    """One figure from outside: its value, how it comes about, and where that is printed."""

    value: float
    """FLOP/s, B/s or bytes."""
    words: str
    """`132 SMs x 4096 FLOP x 1.830 GHz, dense, tensor cores`."""
    source: str
    clock_mhz: float = 0.0
    """0 where none is printed, or none matters."""


class TheoreticalCeilings(msgspec.Struct, frozen=True):
    """What a card can do at most."""

    card: str
    """As the table names it; '' where the card is not in it."""
    flops: dict[str, TheoreticalFigure]
    """FLOP/s by precision: float64, float32, tf32, float16, bfloat16, float8; float64_cores is float64 outside tensor
    cores, and float16_cores float16 where a card has it there only."""
    dram_bandwidth: TheoreticalFigure | None = None
    """B/s."""
    cache_bytes: TheoreticalFigure | None = None
    """L2."""
    missing: dict[str, str] = {}


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cards whose SMs are alike."""

    capabilities: list[str]
    source: str
    per_cycle: dict[str, int]
    """FLOP per SM and cycle."""
    cores: list[str] = []
    """Precisions below float32 that run outside tensor cores."""


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One card as its maker describes it."""

    name: str
    names: list[str]
    family: str
    sms: int
    source: str
    dram_bandwidth: float
    published: dict[str, float]
    boost_mhz: float = 0.0
    tensor_mhz: float = 0.0
    l2_bytes: int = 0
    others: dict[str, str] = {}

    def source_of(self, figure: str) -> str:
        """The key of the source of one of its figures."""
        return self.others.get(figure, self.source)


class GpuTables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    sources: dict[str, str]
    families: dict[str, Family]
    cards: list[Card]


@cache
def load_gpu_tables(path: Path = PATH) -> GpuTables:
    """The table as it stands in the file. Raises SondaError where the file is damaged."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text()), GpuTables)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise SondaError(f"{path.name}: {error}", "install Sonda again") from None


def plain_name(name: str) -> str:
    """A card's name without maker and brand, spaces and case evened out: `Tesla V100-SXM2-16GB` -> `v100 sxm2 16gb`."""
    return re.sub(r"[\s_-]+", " ", BRANDS.sub(" ", name)).strip().casefold()


def find_card(name: str) -> Card | None:
    """The card with exactly this name: `RTX 3080 Laptop GPU` is no `RTX 3080`."""
    wanted = plain_name(name)
    return next((card for card in load_gpu_tables().cards if wanted in map(plain_name, card.names)), None)


def find_theory(device: GpuDevice) -> TheoreticalCeilings:
    """The theoretical ceilings of a device; what is not known is named in `missing` with the reason."""
    tables = load_gpu_tables()
    card = find_card(device.name)
    if card is None:
        return _compute_theory(device, tables, f"{device.name} is not in the table of cards")
    if device.sms and device.sms != card.sms:
        return _compute_theory(device, tables, f"{device.name} has {device.sms} SMs, in the table {card.sms}")
    family = tables.families[card.family]
    flops: dict[str, TheoreticalFigure] = {}
    for precision in family.per_cycle if card.boost_mhz else card.published:
        figure = _peak_figure(card, family, precision, tables)
        # What a precision can reach at most: matrix products in float64 run on tensor cores where these can.
        name = precision.removesuffix("_tensor")
        if name not in flops or figure.value > flops[name].value:
            flops[name] = figure
        if precision == "float64" or precision in family.cores:
            flops[f"{precision}_cores"] = figure
    reasons = {
        precision: f"{card.name} has no tensor cores for it"
        for precision in ("tf32", "float16", "bfloat16", "float8")
        if precision not in flops
    }
    bandwidth = TheoreticalFigure(
        card.dram_bandwidth, "memory bandwidth", tables.sources[card.source_of("dram_bandwidth")]
    )
    size = (
        TheoreticalFigure(card.l2_bytes, "L2 cache", tables.sources[card.source_of("l2_bytes")])
        if card.l2_bytes
        else None
    )
    return TheoreticalCeilings(card.name, flops, bandwidth, size or _cache_figure(device), reasons)


def _peak_figure(card: Card, family: Family, precision: str, tables: GpuTables) -> TheoreticalFigure:
    tensor = precision not in ON_CORES and precision not in family.cores
    unit = "tensor cores" if tensor else "cores"
    if not card.boost_mhz:
        return TheoreticalFigure(
            card.published[precision], f"dense, {unit}, clock not printed", tables.sources[card.source]
        )
    clock = card.boost_mhz if precision in AT_BOOST else card.tensor_mhz or card.boost_mhz
    figure = "tensor_mhz" if precision not in AT_BOOST and card.tensor_mhz else "boost_mhz"
    rate = family.per_cycle[precision]
    sources = dict.fromkeys([tables.sources[card.source_of(figure)], tables.sources[family.source]])
    words = f"{card.sms} SMs x {rate} FLOP x {clock / 1e3:.3f} GHz, dense, {unit}"
    return TheoreticalFigure(card.sms * rate * clock * 1e6, words, "; ".join(sources), clock)


def _compute_theory(device: GpuDevice, tables: GpuTables, reason: str) -> TheoreticalCeilings:
    """Figures from the driver's facts about the device: float32 outside tensor cores, and its memory's bandwidth."""
    missing = dict.fromkeys(("float64", "tf32", "float16", "bfloat16", "float8"), reason)
    flops: dict[str, TheoreticalFigure] = {}
    rate, source = _core_rate(device.capability, tables)
    if not rate:
        missing["float32"] = f"{reason}, and the cores of an SM of compute capability {device.capability} are not known"
    elif not device.sms or not device.sm_mhz:
        missing["float32"] = f"{reason}, and it does not say its SMs and its highest clock"
    else:
        words = f"{device.sms} SMs x {rate} FLOP x {device.sm_mhz / 1e3:.3f} GHz (highest clock), cores; {reason}"
        flops["float32"] = TheoreticalFigure(device.sms * rate * device.sm_mhz * 1e6, words, source, device.sm_mhz)
    bandwidth = None
    if device.memory_mhz and device.memory_bits:
        words = f"2 x {device.memory_mhz / 1e3:.3f} GHz x {device.memory_bits} bits (highest clock); {reason}"
        bandwidth = TheoreticalFigure(
            2 * device.memory_mhz * 1e6 * device.memory_bits / 8, words, "the driver's figures"
        )
    else:
        missing["dram_bandwidth"] = f"{reason}, and it does not say its memory's clock and width"
    return TheoreticalCeilings("", flops, bandwidth, _cache_figure(device), missing)


def _core_rate(capability: str, tables: GpuTables) -> tuple[int, str]:
    """FLOP per SM and cycle in float32, the same in all families of a compute capability; 0 where it is not known."""
    rates = {family.per_cycle["float32"] for family in tables.families.values() if capability in family.capabilities}
    return (rates.pop(), tables.sources["guide"]) if len(rates) == 1 else (0, "")


def _cache_figure(device: GpuDevice) -> TheoreticalFigure | None:
    return TheoreticalFigure(device.l2_bytes, "L2 cache", "the driver's figures") if device.l2_bytes else None
