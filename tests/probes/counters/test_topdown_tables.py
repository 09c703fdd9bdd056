"""Top-Down tables: every code from its parts, every formula from counts worked out by hand, none on silicon."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from sonda.probes.counters.topdown_tables import (
    DIRECTORY,
    JOINT,
    TopDownTable,
    check_table,
    find_table,
    load_tables,
    read_table,
)
from sonda.probes.machine.processor import ProcessorIdentity
from sonda.record.errors import SondaError

NAMES = sorted(load_tables())


def shares(table: TopDownTable, counts: dict[str, float]) -> dict[str, float]:
    """Formulas and categories in order, on these counts."""
    known: dict[str, float] = {"width": table.definition.width, **counts}
    for name, expression in table.definition.parsed().items():
        known[name] = float(expression.value(known))
    return {category.name: known[category.name] for category in table.definition.categories}


STALLS = {"cycle_activity_stalls_mem_any": 200, "cycle_activity_stalls_total": 300, "exe_activity_bound_on_stores": 40,
          "exe_activity_1_ports_util": 100, "exe_activity_2_ports_util": 80}  # fmt: skip
DECODING = {"idq_uops_not_delivered_cycles_0": 100, "br_misp_retired_all_branches": 30, "machine_clears_count": 10,
            "uops_issued_any": 2500, "idq_ms_uops": 50, "uops_decoded_dec0": 300, "uops_decoded_dec0_cycles": 200,
            "idq_mite_uops": 1000}  # fmt: skip
ZEN = {"ex_ret_brn_misp": 30, "ex_no_retire_load_not_complete": 60, "ex_no_retire_not_complete": 80,
       "de_no_dispatch_no_ops_cycles": 100}  # fmt: skip

BY_HAND: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "skylake-sp": (
        {"cycles": 1000, "instructions": 1500, "idq_uops_not_delivered_core": 800, "uops_issued_any": 2100,
         "uops_retired_retire_slots": 1800, "int_misc_recovery_cycles": 25, "idq_uops_not_delivered_cycles_0": 120,
         "br_misp_retired_all_branches": 30, "machine_clears_count": 10, "uops_retired_macro_fused": 100, **STALLS},
        # 4000 slots. Bad: (2100 - 1800 + 4 * 25) / 4000. Backend: 1 - 0.2 - (2100 + 100) / 4000.
        # Memory: 0.25 * (200 + 40) / (300 + 100 + 0.45 * 80 + 40). Heavy: (1800 + 100 - 1500) / 4000.
        {"frontend_bound": 0.2, "bad_speculation": 0.1, "backend_bound": 0.25, "retiring": 0.45, "fetch_latency": 0.12,
         "fetch_bandwidth": 0.08, "branch_mispredicts": 0.075, "machine_clears": 0.025, "memory_bound": 60 / 476,
         "core_bound": 0.25 - 60 / 476, "heavy_operations": 0.1, "light_operations": 0.35},
    ),
    "ice-lake-sp": (
        {"slots": 5000, "topdown_retiring": 2000, "topdown_bad_spec": 500, "topdown_fe_bound": 1000,
         "topdown_be_bound": 1500, "int_misc_uop_dropping": 50, "int_misc_clears_count": 20, "cycles": 1000,
         "instructions": 1, **DECODING, **STALLS},
        # Frontend: 0.2 - 50 / 5000. Backend: 0.3 + 5 * 20 / 5000. Fetch latency: (5 * 100 - 50) / 5000.
        # Memory: 0.32 * 240 / (300 + 100 + 0.4 * 80 + 40). Heavy: 0.4 * 50 / 2500 + 0.4 * (300 - 200) / 1000.
        {"frontend_bound": 0.19, "bad_speculation": 0.09, "backend_bound": 0.32, "retiring": 0.4, "fetch_latency": 0.09,
         "fetch_bandwidth": 0.1, "branch_mispredicts": 0.0675, "machine_clears": 0.0225,
         "memory_bound": 0.32 * 240 / 472, "core_bound": 0.32 * 232 / 472, "heavy_operations": 0.048,
         "light_operations": 0.352},
    ),
    "ice-lake-sp-guest": (
        {"topdown_slots_p": 5000, "topdown_backend_bound_slots": 1500, "idq_uops_not_delivered_core": 1000,
         "uops_retired_slots": 2000, "cycles": 1000, "instructions": 1, **DECODING, **STALLS},
        {"frontend_bound": 0.2, "bad_speculation": 0.1, "backend_bound": 0.3, "retiring": 0.4, "fetch_latency": 0.1,
         "fetch_bandwidth": 0.1, "branch_mispredicts": 0.075, "machine_clears": 0.025, "memory_bound": 0.3 * 240 / 472,
         "core_bound": 0.3 * 232 / 472, "heavy_operations": 0.048, "light_operations": 0.352},
    ),
    "sapphire-rapids": (
        {"slots": 6000, "topdown_retiring": 2400, "topdown_bad_spec": 600, "topdown_fe_bound": 1200,
         "topdown_be_bound": 1800, "topdown_heavy_ops": 300, "topdown_br_mispredict": 450, "topdown_fetch_lat": 900,
         "topdown_mem_bound": 1200, "int_misc_uop_dropping": 60, "cycles": 1000, "instructions": 1},
        {"frontend_bound": 0.19, "bad_speculation": 0.11, "backend_bound": 0.3, "retiring": 0.4, "fetch_latency": 0.14,
         "fetch_bandwidth": 0.05, "branch_mispredicts": 0.075, "machine_clears": 0.035, "memory_bound": 0.2,
         "core_bound": 0.1, "heavy_operations": 0.05, "light_operations": 0.35},
    ),
    "sapphire-rapids-guest": (
        {"topdown_slots_p": 6000, "topdown_backend_bound_slots": 1800, "idq_bubbles_core": 1200,
         "uops_retired_slots": 2400, "topdown_memory_bound_slots": 1200, "idq_bubbles_cycles_0": 100,
         "uops_retired_heavy": 300, "topdown_br_mispredict_slots": 300, "cycles": 1000, "instructions": 1},
        {"frontend_bound": 0.2, "bad_speculation": 0.1, "backend_bound": 0.3, "retiring": 0.4, "fetch_latency": 0.1,
         "fetch_bandwidth": 0.1, "branch_mispredicts": 0.05, "machine_clears": 0.05, "memory_bound": 0.2,
         "core_bound": 0.1, "heavy_operations": 0.05, "light_operations": 0.35},
    ),
    "zen4": (
        {"cycles": 1000, "instructions": 1, "de_no_dispatch_no_ops_from_frontend": 1200,
         "de_no_dispatch_backend_stalls": 2400, "de_no_dispatch_smt_contention": 300, "de_src_op_disp_all": 2100,
         "ex_ret_ops": 1800, "resyncs_or_nc_redirects": 10, "ex_ret_ucode_ops": 180, **ZEN},
        {"frontend_bound": 0.2, "bad_speculation": 0.05, "backend_bound": 0.4, "smt_contention": 0.05, "retiring": 0.3,
         "fetch_latency": 0.1, "fetch_bandwidth": 0.1, "branch_mispredicts": 0.0375, "pipeline_restarts": 0.0125,
         "memory_bound": 0.3, "core_bound": 0.1, "microcode": 0.03, "fastpath": 0.27},
    ),
    "zen5": (
        {"cycles": 1000, "instructions": 1, "de_no_dispatch_no_ops_from_frontend": 1600,
         "de_no_dispatch_backend_stalls": 3200, "de_no_dispatch_smt_contention": 400, "de_src_op_disp_all": 2800,
         "ex_ret_ops": 2400, "bp_redirects_resync": 10, "ex_ret_ucode_ops": 240, **ZEN},
        {"frontend_bound": 0.2, "bad_speculation": 0.05, "backend_bound": 0.4, "smt_contention": 0.05, "retiring": 0.3,
         "fetch_latency": 0.1, "fetch_bandwidth": 0.1, "branch_mispredicts": 0.0375, "pipeline_restarts": 0.0125,
         "memory_bound": 0.3, "core_bound": 0.1, "microcode": 0.03, "fastpath": 0.27},
    ),
    **{
        name: (
            {"cycles": 1000, "instructions": 1, "ex_ret_ops": 1800, "de_dis_ops_dispatched": 2100,
             "de_dis_uop_queue_empty": 150},
            {"frontend_latency": 0.15, "bad_speculation": 0.05, "retiring": 0.3, "backend_or_bandwidth": 0.5},
        )
        for name in ("zen2", "zen3")
    },
    "neoverse-v1": (
        {"cycles": 1000, "instructions": 1, "stall_slot_frontend": 2000, "stall_slot_backend": 3200, "stall_slot": 5200,
         "op_retired": 2100, "op_spec": 2800, "br_mis_pred": 10, "stall_backend": 200, "stall_backend_mem": 150},
        # 8000 slots; three quarters of what is dispatched retires; 4 cycles are lost for each of 10 mispredictions.
        {"frontend_bound": 0.25 - 0.04, "bad_speculation": 0.25 * 0.35 + 0.04, "backend_bound": 0.4,
         "retiring": 0.75 * 0.35, "memory_bound": 0.3, "core_bound": 0.1},
    ),
    "neoverse-n2": (
        {"cycles": 1000, "instructions": 1, "stall_slot_frontend": 2000, "stall_slot_backend": 1500, "stall_slot": 3500,
         "op_retired": 2100, "op_spec": 2800, "stall_backend": 200, "stall_backend_mem": 150},
        # 5000 slots; cycles come off twice: (2000 - 1000) / 5000 and 1 - (3500 - 1000) / 5000.
        {"frontend_bound": 0.2, "bad_speculation": 0.125, "backend_bound": 0.3, "retiring": 0.375,
         "memory_bound": 0.225, "core_bound": 0.075},
    ),
    "neoverse-v2": (
        {"cycles": 1000, "instructions": 1, "stall_slot_frontend": 2000, "stall_slot_backend": 3200, "stall_slot": 5200,
         "op_retired": 2100, "op_spec": 2800, "stall_backend": 200, "stall_backend_mem": 150},
        {"frontend_bound": 0.25, "bad_speculation": 0.25 * 0.35, "backend_bound": 0.4, "retiring": 0.75 * 0.35,
         "memory_bound": 0.3, "core_bound": 0.1},
    ),
    "neoverse-n1": (
        {"cycles": 1000, "instructions": 1, "stall_frontend": 200, "stall_backend": 300},
        {"frontend_bound": 0.2, "backend_bound": 0.3, "not_stalled": 0.5},
    ),
}  # fmt: skip


def test_every_table_has_an_example_by_hand() -> None:
    assert sorted(BY_HAND) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_categories_are_what_a_hand_computes(name: str) -> None:
    counts, expected = BY_HAND[name]
    assert shares(load_tables()[name], counts) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_levels_add_up(name: str) -> None:
    table = load_tables()[name]
    found = shares(table, BY_HAND[name][0])
    categories = table.definition.categories
    assert sum(found[one.name] for one in categories if not one.parent) == pytest.approx(1.0, abs=1e-12)
    for parent in {one.parent for one in categories if one.parent}:
        parts = [found[one.name] for one in categories if one.parent == parent]
        assert len(parts) == 2 and sum(parts) == pytest.approx(found[parent], abs=1e-12)


@pytest.mark.parametrize("name", ["skylake-sp", "neoverse-v1", "neoverse-v2", "neoverse-n2", "zen3", "neoverse-n1"])
def test_level_one_is_whole_whatever_the_counts(name: str) -> None:
    # By construction, not by luck: other counts give other shares and the same sum.
    table = load_tables()[name]
    counts = {event: float(17 + 13 * at) for at, event in enumerate(sorted({*JOINT, *table.events}))}
    counts["stall_slot"] = counts.get("stall_slot_frontend", 0) + counts.get("stall_slot_backend", 0)
    found = shares(table, counts)
    assert sum(found[one.name] for one in table.definition.categories if not one.parent) == pytest.approx(1.0)


def test_zen_4_as_perf_itself_printed_it_on_silicon() -> None:
    # Published logs of `perf stat -M PipelineL2`: counts, and the percentages that perf derived from them.
    for frontend, cmask, cycles, bandwidth, latency in (
        (1_015_643_532, 66_285_441, 6_032_942_046, 1.7, 1.1),
        (120_252_170_513, 12_264_876_090, 30_850_786_559, 25.2, 39.8),
        (61_741_892_891, 7_977_841_412, 113_784_989_539, 2.0, 7.0),
    ):
        counts = dict(BY_HAND["zen4"][0])
        counts |= {"de_no_dispatch_no_ops_from_frontend": frontend, "de_no_dispatch_no_ops_cycles": cmask,
                   "cycles": cycles}  # fmt: skip
        found = shares(load_tables()["zen4"], counts)
        assert round(100 * found["fetch_bandwidth"], 1) == bandwidth
        assert round(100 * found["fetch_latency"], 1) == latency


# ---- codes --------------------------------------------------------------------------------------------------------

CODES = {
    # From the sources' own lists, written as they write them.
    ("skylake-sp", "idq_uops_not_delivered_core"): 0x019C,
    ("skylake-sp", "machine_clears_count"): 0x010401C3,
    ("skylake-sp", "cycle_activity_stalls_mem_any"): 0x140014A3,
    ("skylake-sp", "idq_uops_not_delivered_cycles_0"): 0x0400019C,
    ("ice-lake-sp", "slots"): 0x0400,
    ("ice-lake-sp", "topdown_be_bound"): 0x8300,
    ("ice-lake-sp", "int_misc_clears_count"): 0x0104010D,
    ("ice-lake-sp", "exe_activity_bound_on_stores"): 0x020040A6,
    ("sapphire-rapids", "topdown_mem_bound"): 0x8700,
    ("sapphire-rapids", "int_misc_uop_dropping"): 0x10AD,
    ("sapphire-rapids-guest", "topdown_memory_bound_slots"): 0x10A4,
    ("zen4", "de_no_dispatch_backend_stalls"): 0x100001EA0,
    ("zen4", "de_no_dispatch_no_ops_cycles"): 0x1060001A0,
    ("zen5", "de_no_dispatch_no_ops_cycles"): 0x1080001A0,
    ("zen5", "bp_redirects_resync"): 0x019F,
    ("zen4", "ex_ret_ucode_ops"): 0x1000000C2,
    ("zen2", "de_dis_ops_dispatched"): 0xFFAA,
    ("zen3", "de_dis_ops_dispatched"): 0x03AA,
    ("neoverse-v1", "stall_backend_mem"): 0x4005,
}


@pytest.mark.parametrize(
    ("place", "code"), CODES.items(), ids=lambda value: value[1] if isinstance(value, tuple) else ""
)
def test_codes_are_those_of_the_sources(place: tuple[str, str], code: int) -> None:
    table, event = place
    assert load_tables()[table].events[event].config == code


@pytest.mark.parametrize("name", NAMES)
def test_every_code_follows_from_its_parts(name: str) -> None:
    table = load_tables()[name]
    for event in table.events.values():
        if event.sysfs:
            # PERF_METRICS: 0x8000 and a step of 0x100 for each field (Linux arch/x86/include/asm/perf_event.h).
            assert event.config == 0x400 or (event.config & 0xFF == 0 and 0x8000 <= event.config <= 0x8700)
        elif table.encoding == "intel":
            cmask, edge = event.config >> 24, bool(event.config >> 18 & 1)
            assert (event.config & 0xFF, event.config >> 8 & 0xFF) == (event.event, event.umask)
            assert (cmask, edge, event.config & ~0xFF04FFFF) == (event.cmask, event.edge, 0)
        elif table.encoding == "amd":
            assert (event.config >> 32 << 8 | event.config & 0xFF, event.config >> 8 & 0xFF) == (
                event.event,
                event.umask,
            )
            assert event.config >> 24 & 0xFF == event.cmask
        else:
            assert event.config == event.event


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_sound_and_say_where_they_come_from(name: str) -> None:
    table = load_tables()[name]
    assert check_table(table) == []
    assert table.definition.source and table.definition.width
    assert all(re.fullmatch(r"[a-z0-9_]+", event) for event in table.events)
    if table.definition.approximate:
        assert any("not" in note for note in table.definition.notes)


def test_mistakes_in_a_table_are_found(tmp_path: Path) -> None:
    text = (DIRECTORY / "zen3.toml").read_text(encoding="utf-8")

    def mistake(before: str, after: str) -> str:
        path = tmp_path / "own.toml"
        assert before in text
        path.write_text(text.replace(before, after, 1), encoding="utf-8")
        with pytest.raises(SondaError) as caught:
            read_table(path)
        return caught.value.cause

    assert "no event and no formula" in mistake("queue_empty / cycles", "queue_empty / cycle")
    assert "'de_dis_uop_queue_empty' is in no formula" in mistake('"de_dis_uop_queue_empty / cycles"', '"1 / cycles"')
    assert "config 0x3ab is not what" in mistake("config = 0x3aa", "config = 0x3ab")
    assert "in no group" in mistake(', "de_dis_uop_queue_empty"]', "]")
    assert "lacks cycles" in mistake('["cycles", "instructions", ', '["cycles", ')
    assert "more than 4 counters" in mistake("counters = 6", "counters = 4")
    assert "not a Top-Down table" in mistake("width = 6", "width = [")
    assert "own.toml" in mistake("counters = 6", 'counters = "six"')


def test_groups_are_cut_where_counters_are_missing() -> None:
    table = load_tables()["zen4"]
    assert table.fit_groups(6) == table.groups
    cut = table.fit_groups(5)  # the watchdog has one
    assert all(len(group) <= 5 and set(JOINT) <= set(group) for group in cut)
    assert {name for group in cut for name in group} == {name for group in table.groups for name in group}
    with pytest.raises(SondaError, match="too few"):
        table.fit_groups(2)


# ---- which table --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vendor", "family", "model", "name"), [
    ("GenuineIntel", 6, 85, "skylake-sp"), ("GenuineIntel", 6, 106, "ice-lake-sp"),
    ("GenuineIntel", 6, 143, "sapphire-rapids"), ("GenuineIntel", 6, 207, "sapphire-rapids"),
    ("GenuineIntel", 6, 173, "sapphire-rapids"), ("AuthenticAMD", 23, 49, "zen2"), ("AuthenticAMD", 23, 113, "zen2"),
    ("AuthenticAMD", 25, 1, "zen3"), ("AuthenticAMD", 25, 33, "zen3"), ("AuthenticAMD", 25, 17, "zen4"),
    ("AuthenticAMD", 25, 97, "zen4"), ("AuthenticAMD", 26, 2, "zen5"), ("AuthenticAMD", 26, 68, "zen5"),
    ("ARM", 8, 0xD0C, "neoverse-n1"), ("ARM", 8, 0xD40, "neoverse-v1"), ("ARM", 8, 0xD49, "neoverse-n2"),
    ("ARM", 8, 0xD4F, "neoverse-v2"),
])  # fmt: skip
def test_processors_find_their_table(vendor: str, family: int, model: int, name: str) -> None:
    matching = [table.key for table in load_tables().values() if table.matches(vendor, family, model)]
    assert matching == [name], "one table and no other"
    assert find_table(ProcessorIdentity(vendor=vendor, family=family, model=model)).key == name


PERF_AMD = (
    (23, r"([12][0-9A-F]|[0-9A-F])", ""), (23, r"[0-9A-F]+", "zen2"), (25, r"([245][0-9A-F]|[0-9A-F])", "zen3"),
    (25, r"[0-9A-F]+", "zen4"), (26, r"([12467][0-9A-F]|[0-9A-F])", "zen5"), (26, r"[0-9A-F]+", ""),
)  # fmt: skip
"""Linux's tools/perf/pmu-events/arch/x86/mapfile.csv of 2026: family, model; the first that fits; '' has no table."""
KERNEL_AMD = {
    23: {"zen2": [(0x30, 0x4F), (0x60, 0x7F), (0x90, 0x91), (0xA0, 0xAF)]},
    25: {"zen3": [(0x00, 0x0F), (0x20, 0x5F)], "zen4": [(0x10, 0x1F), (0x60, 0xAF)]},
}
"""`bsp_init_amd` in Linux's arch/x86/kernel/cpu/amd.c of 2023; its ranges of family 26 are older than perf's."""


@pytest.mark.parametrize("family", [23, 25, 26])
def test_amd_models_have_the_table_that_perf_and_the_kernel_give_them(family: int) -> None:
    for model in range(0x100):
        perf = next(name for at, pattern, name in PERF_AMD if at == family and re.fullmatch(pattern, f"{model:X}"))
        kernel = [name for name, ranges in KERNEL_AMD.get(family, {perf: [(0, 0xFF)]}).items()
                  if any(low <= model <= high for low, high in ranges)]  # fmt: skip
        expected = [perf] if perf and kernel == [perf] else []  # where they disagree nothing is claimed
        found = [table.key for table in load_tables().values() if table.matches("AuthenticAMD", family, model)]
        assert found == expected, hex(model)


def test_studies_know_the_categories_that_tables_have() -> None:
    from sonda.studies.figures.counters import CATEGORIES

    known = [{category.name for category in table.definition.categories} for table in load_tables().values()]
    everywhere = set.intersection(*(one for one in known if "retiring" in one))
    assert everywhere <= set(CATEGORIES) <= set.union(*known)


@pytest.mark.parametrize("identity", [
    ProcessorIdentity("Haswell", "GenuineIntel", 6, 60), ProcessorIdentity("Zen 1", "AuthenticAMD", 23, 1),
    ProcessorIdentity(), ProcessorIdentity(vendor="ARM"),
])  # fmt: skip
def test_an_unknown_processor_is_one_line(identity: ProcessorIdentity) -> None:
    with pytest.raises(SondaError, match="no Top-Down table for") as caught:
        find_table(identity)
    assert "\n" not in str(caught.value)


def test_what_a_run_keeps_can_be_read_back() -> None:
    from sonda.record.conventions.topdown import read_definition

    for table in load_tables().values():
        kept = msgspec.json.decode(msgspec.json.encode(table.counted_definition()))
        assert read_definition(kept) == table.definition
        assert kept["table"] == table.key and set(kept["events"]) == set(table.events)
