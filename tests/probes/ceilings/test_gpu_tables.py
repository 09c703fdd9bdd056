"""Theoretical ceilings of GPUs: every figure has a source, products of factors agree with what the maker prints."""

from __future__ import annotations

import pytest

from sonda.probes.ceilings.gpu_tables import PATH, find_card, find_theory, load_gpu_tables
from sonda.probes.machine.gpu import GpuDevice
from sonda.record.errors import SondaError

TABLES = load_gpu_tables()
PRECISIONS = {"float64", "float64_tensor", "float32", "tf32", "float16", "bfloat16", "float8"}


@pytest.mark.parametrize("card", TABLES.cards, ids=lambda card: card.name)
def test_every_figure_of_a_card_has_a_source(card):
    family = TABLES.families[card.family]
    assert TABLES.sources[family.source]
    for figure in ("sms", "boost_mhz", "tensor_mhz", "dram_bandwidth", "l2_bytes", "published"):
        assert TABLES.sources[card.source_of(figure)]
    assert set(card.others) <= {"sms", "boost_mhz", "tensor_mhz", "dram_bandwidth", "l2_bytes"}
    assert set(card.published) <= PRECISIONS
    assert set(family.per_cycle) <= PRECISIONS


@pytest.mark.parametrize("card", [card for card in TABLES.cards if card.boost_mhz], ids=lambda card: card.name)
def test_sms_times_flop_times_clock_is_what_the_maker_prints(card):
    family = TABLES.families[card.family]
    for precision, printed in card.published.items():
        slower = precision not in ("float32", "float64", "float64_tensor") and card.tensor_mhz
        clock = (card.tensor_mhz if slower else card.boost_mhz) * 1e6
        # Makers round to two or three digits: 7 TFLOP/s for 7.066 is the coarsest.
        assert card.sms * family.per_cycle[precision] * clock == pytest.approx(printed, rel=0.01), precision


def test_every_source_is_used():
    used = {card.source_of(figure) for card in TABLES.cards for figure in ("source", *card.others)}
    used |= {family.source for family in TABLES.families.values()}
    assert used | {card.source for card in TABLES.cards} == set(TABLES.sources)


def test_no_name_belongs_to_two_cards():
    names = [name.casefold() for card in TABLES.cards for name in card.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80 GB"),
        ("A100-SXM4-40GB", "A100 SXM4 40 GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80 GB"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"),
        ("Tesla T4", "T4"),
        ("Tesla K80", "Tesla K80, one of its two processors"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("GeForce GTX 1080 Ti", "GeForce GTX 1080 Ti"),
        ("NVIDIA TITAN RTX", "TITAN RTX"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada Generation"),
    ],
)
def test_a_card_is_found_by_the_drivers_name(name, card):
    assert find_card(name).name == card


@pytest.mark.parametrize(
    "name", ["NVIDIA GeForce RTX 3080 Laptop GPU", "NVIDIA A10G", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "", "Radeon VII"]
)
def test_other_cards_with_similar_names_are_not_taken_for_it(name):
    assert find_card(name) is None


def h200(**facts):
    return GpuDevice(**{"name": "NVIDIA H200", "capability": "9.0", "sms": 132, "sm_mhz": 1980.0, **facts})


def test_the_h200_as_its_datasheet_has_it():
    # 132 x 256 x 1.98e9; 132 x 4096 x 1.83e9; NVIDIA prints 66.9 and 989.4 dense.
    found = find_theory(h200())
    assert found.flops["float32"].value == 132 * 256 * 1980e6
    assert found.flops["bfloat16"].value == 132 * 4096 * 1830e6
    assert found.flops["bfloat16"].clock_mhz == 1830
    assert "dense" in found.flops["bfloat16"].words
    assert found.dram_bandwidth.value == 4.8e12
    assert found.missing == {}


def test_a_cache_that_no_paper_prints_is_the_one_that_the_driver_reports():
    # What the driver of an H200 answered on 15 November 2026; the paper on the H100 says 50 MiB, of another card.
    found = find_theory(h200(l2_bytes=62_914_560)).cache_bytes
    assert (found.value, found.source) == (62_914_560, "the driver's figures")
    assert find_theory(h200()).cache_bytes is None
    hundred = find_theory(GpuDevice(name="NVIDIA H100 80GB HBM3", sms=132, l2_bytes=1)).cache_bytes
    assert hundred.value == 50 * 1024**2 and "H100" in hundred.source


def test_float64_is_held_against_tensor_cores_where_they_have_it():
    assert find_theory(h200()).flops["float64"].value == 132 * 256 * 1980e6
    assert "tensor cores" in find_theory(h200()).flops["float64"].words
    volta = find_theory(GpuDevice(name="Tesla V100-SXM2-16GB", sms=80))
    assert volta.flops["float64"].value == 80 * 64 * 1530e6


def test_float64_outside_tensor_cores_has_a_peak_of_its_own():
    # NVIDIA prints 33.5 TFLOP/s for it: 132 x 64 cores x 2 x 1.98 GHz.
    cores = find_theory(h200()).flops["float64_cores"]
    assert cores.value == 132 * 64 * 2 * 1980e6 == pytest.approx(33.5e12, rel=0.002)
    assert cores.words.endswith(", cores")
    assert find_theory(GpuDevice(name="Tesla V100-SXM2-16GB", sms=80)).flops["float64_cores"].value == 80 * 64 * 1530e6
    assert find_theory(GpuDevice(name="NVIDIA B200", sms=148)).flops["float64_cores"].value == 37e12
    # A P100 has no tensor cores: its float16 is that of its cores.
    pascal = find_theory(GpuDevice(name="Tesla P100-SXM2-16GB", sms=56)).flops
    assert pascal["float16_cores"] == pascal["float16"]


def test_precisions_that_a_card_lacks_are_missing_with_the_reason():
    found = find_theory(GpuDevice(name="Tesla T4", sms=40))
    assert set(found.flops) == {"float32", "float64", "float64_cores", "float16"}
    assert found.missing["bfloat16"] == "T4 has no tensor cores for it"


def test_a_card_whose_clock_is_not_printed_has_the_printed_peaks():
    found = find_theory(GpuDevice(name="NVIDIA B200", sms=148, l2_bytes=132_644_864))
    assert found.flops["bfloat16"].value == 2250e12
    assert found.flops["bfloat16"].clock_mhz == 0
    assert "clock not printed" in found.flops["bfloat16"].words
    assert found.cache_bytes.value == 132_644_864


def test_a_part_of_a_card_does_not_get_the_peaks_of_the_whole():
    found = find_theory(h200(sms=16))
    assert found.card == ""
    assert found.flops["float32"].value == 16 * 256 * 1980e6
    assert "has 16 SMs, in the table 132" in found.missing["bfloat16"]


def test_an_unknown_card_gets_what_can_be_computed():
    # 80 SMs of compute capability 8.6 x 128 cores x 2 x 1.71 GHz; 2 x 6.251 GHz x 384 bits / 8 = 600 GB/s (A10G).
    found = find_theory(GpuDevice(name="NVIDIA A10G", capability="8.6", sms=80, sm_mhz=1710.0, memory_mhz=6251.0,
                             memory_bits=384))  # fmt: skip
    assert found.card == ""
    assert found.flops["float32"].value == 80 * 256 * 1710e6
    assert found.dram_bandwidth.value == pytest.approx(600e9, rel=1e-3)
    assert "is not in the table of cards" in found.missing["float16"]
    assert "is not in the table of cards" in found.flops["float32"].words


def test_an_unknown_kind_of_card_gets_no_peak():
    found = find_theory(GpuDevice(name="NVIDIA X1", capability="13.0", sms=100, sm_mhz=2000.0))
    assert found.flops == {}
    assert "compute capability 13.0" in found.missing["float32"]
    assert "memory's clock" in found.missing["dram_bandwidth"]


def test_a_damaged_table_is_one_line(tmp_path):
    damaged = tmp_path / "gpus.toml"
    damaged.write_text(PATH.read_text().replace("sms = 132", 'sms = "many"', 1))
    with pytest.raises(SondaError, match=r"gpus\.toml"):
        load_gpu_tables(damaged)
