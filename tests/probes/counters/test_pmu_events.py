"""Events of a PMU and what is planned on a machine: on constructed trees of /sys and /proc, the kernel replaced."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sonda.frameworks.collector.counters.perf_event import Event, PerfEventError
from sonda.probes.counters.pmu import plan_counting, pmu_state
from sonda.probes.counters.pmu_events import Pmu, core_pmus, event_quantity, parse_format, resolve_event
from sonda.record.errors import SondaError

DEVICES = "sys/bus/event_source/devices"
INTEL = {"event": "config:0-7", "umask": "config:8-15", "edge": "config:18", "inv": "config:23",
         "cmask": "config:24-31", "offcore_rsp": "config1:0-63"}  # fmt: skip
AMD = {"event": "config:0-7,32-35", "umask": "config:8-15", "cmask": "config:24-31"}
METRICS = {"slots": "event=0x00,umask=0x4", "topdown-retiring": "event=0x00,umask=0x80",
           "topdown-bad-spec": "event=0x00,umask=0x81", "topdown-fe-bound": "event=0x00,umask=0x82",
           "topdown-be-bound": "event=0x00,umask=0x83"}  # fmt: skip


def machine(
    root: Path, cpuinfo: str, pmus: dict[str, tuple[int, dict[str, str], dict[str, str]]] | None = None, smt: int = 0,
    **files: str,
) -> Path:  # fmt: skip
    """A machine's tree: PMUs by name with type, format and events."""
    write = {"proc/cpuinfo": cpuinfo, "sys/devices/system/cpu/smt/active": str(smt), **files}
    for name, (number, formats, events) in (pmus or {}).items():
        write[f"{DEVICES}/{name}/type"] = str(number)
        write |= {f"{DEVICES}/{name}/format/{key}": text for key, text in formats.items()}
        write |= {f"{DEVICES}/{name}/events/{key}": text for key, text in events.items()}
    for path, text in write.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return root


def x86(vendor: str, family: int, model: int, flags: str = "fpu") -> str:
    return f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t: {model}\n" \
           f"model name\t: Some CPU\nflags\t: {flags}\n"  # fmt: skip


class Tried:
    """The kernel's answer to groups; remembers what it was asked for."""

    def __init__(self, refuse: Callable[[Event], int] = lambda event: 0) -> None:
        self.refuse = refuse
        self.groups: list[list[str]] = []

    def __call__(self, events: Sequence[Event]) -> None:
        self.groups.append([event.name for event in events])
        for event in events:
            code = self.refuse(event)
            if code:
                error = PerfEventError(code, "refused")
                error.event = event.name
                raise error


# ---- names and codes ----------------------------------------------------------------------------------------------


def test_terms_go_where_the_pmu_says() -> None:
    pmu = Pmu("cpu", 4, INTEL)
    assert resolve_event("event=0xc3,umask=0x1,edge,cmask=1", pmu) == (
        "event_0xc3_umask_0x1_edge_cmask_1", 4, 0x010401C3, 0, 0, False
    )  # fmt: skip
    assert resolve_event("cpu/event=0xa3,umask=0x14,cmask=20/", pmu).config == 0x140014A3
    assert resolve_event("event=0xb7,umask=1,offcore_rsp=0x3fbfc00001", pmu)[2:4] == (0x01B7, 0x3FBFC00001)
    # AMD's event numbers are in two pieces.
    assert resolve_event("event=0x1a0,umask=0x1e", Pmu("cpu", 4, AMD)).config == 0x100001EA0
    assert resolve_event("r1000060a0", pmu) == ("r1000060a0", 4, 0x1000060A0, 0, 0, False)


def test_names_of_the_kernel_come_before_those_of_all() -> None:
    pmu = Pmu("cpu", 4, INTEL, {"slots": "event=0x00,umask=0x4", "instructions": "event=0xc0"})
    assert resolve_event("slots", pmu)[1:3] == (4, 0x0400)
    assert resolve_event("instructions", pmu)[1:3] == (4, 0xC0)
    assert resolve_event("cycles", pmu)[1:3] == (0, 0)
    assert resolve_event("branch-misses", pmu).name == "branch_misses"


def test_a_processor_with_two_kinds_of_core_has_two_types(tmp_path: Path) -> None:
    tree = machine(tmp_path, x86("GenuineIntel", 6, 151), {"cpu_atom": (10, INTEL, {}), "cpu_core": (4, INTEL, {})})
    core, atom = core_pmus(tree)
    assert (core.name, core.type, atom.name, atom.type) == ("cpu_core", 4, "cpu_atom", 10)
    # PERF_TYPE_HARDWARE with the PMU's type in the upper half (Linux 5.13).
    assert resolve_event("instructions", atom, hybrid=True)[1:3] == (0, 10 << 32 | 1)
    assert resolve_event("r01c2", atom, hybrid=True)[1:3] == (10, 0x01C2)
    with pytest.raises(SondaError, match="is of the PMU cpu_core, not of cpu_atom"):
        resolve_event("cpu_core/cycles/", atom)


def test_arm_says_how_many_slots_it_has(tmp_path: Path) -> None:
    tree = machine(tmp_path, "", {"armv8_pmuv3_0": (8, {"event": "config:0-15"}, {"cpu_cycles": "event=0x0011"})},
                   **{f"{DEVICES}/armv8_pmuv3_0/caps/slots": "0x00000008"})  # fmt: skip
    [pmu] = core_pmus(tree)
    assert (pmu.slots, resolve_event("cpu_cycles", pmu).config) == (8, 0x11)


@pytest.mark.parametrize(("text", "reason"), [
    ("no-such-event", "has no event"), ("event=0x3c,what=1", "knows no 'what'"), ("event=zz", "has no number"),
    ("event=0x1ff", "too large"), ("", "has no event"), ("cpu//", "has no event"),
])  # fmt: skip
def test_what_the_pmu_does_not_know_is_one_line(text: str, reason: str) -> None:
    with pytest.raises(SondaError, match=reason) as caught:
        resolve_event(text, Pmu("cpu", 4, INTEL))
    assert "\n" not in str(caught.value)


def test_formats() -> None:
    assert parse_format("config:0-7,32-35") == ("config", [*range(8), *range(32, 36)])
    assert parse_format("config1:5") == ("config1", [5])
    for wrong in ("config", "config:", "config:7-", "config3:0-7", "config:0-64", "0-7"):
        with pytest.raises(SondaError):
            parse_format(wrong)


@given(st.text(max_size=40))
def test_any_text_resolves_or_is_a_plain_mistake(text: str) -> None:
    try:
        event = resolve_event(text, Pmu("cpu", 4, INTEL, METRICS))
    except SondaError:
        return
    assert event.name == event_quantity(event.name) and event.config >= 0


# ---- plans --------------------------------------------------------------------------------------------------------


def test_no_pmu_says_why(tmp_path: Path) -> None:
    tree = machine(tmp_path, x86("AuthenticAMD", 25, 1, "fpu hypervisor"))
    refused = Tried(lambda event: errno.ENOENT)
    with pytest.raises(SondaError, match="no PMU in this virtual machine"):
        plan_counting(tree, refused)
    assert pmu_state(tree, refused).state == "missing"
    forbidden = machine(tmp_path / "b", x86("AuthenticAMD", 25, 1), **{"proc/sys/kernel/perf_event_paranoid": "4"})
    found = pmu_state(forbidden, Tried(lambda event: errno.EACCES))
    assert found.reason == "refused: kernel.perf_event_paranoid is 4" and "sysctl" in found.remedy


def test_an_unknown_processor_has_cycles_and_instructions(tmp_path: Path) -> None:
    tree = machine(tmp_path, x86("GenuineIntel", 6, 60), {"cpu": (4, INTEL, {})})
    found = plan_counting(tree, Tried())
    assert [[event.name for event in group] for group in found.groups] == [["cycles", "instructions"]]
    assert found.table is None and found.notes == ["no Top-Down table for Some CPU (family 6, model 60)"]
    assert pmu_state(tree, Tried()).reason == "cycles and instructions only; counted when asked for"


def test_a_machine_without_cpuinfo_still_plans(tmp_path: Path) -> None:
    assert [len(group) for group in plan_counting(tmp_path, Tried()).groups] == [2]


def test_events_asked_for_by_name_have_a_group_of_their_own(tmp_path: Path) -> None:
    tree = machine(tmp_path, x86("GenuineIntel", 6, 60), {"cpu": (4, INTEL, {})})
    found = plan_counting(tree, Tried(), extra=["branch-misses", "r412e"])
    assert [event.name for event in found.groups[-1]] == ["cycles", "instructions", "branch_misses", "r412e"]
    with pytest.raises(SondaError, match="has no event 'nonsense'"):
        plan_counting(tree, Tried(), extra=["nonsense"])


def test_skylake_warns_of_the_sibling_thread(tmp_path: Path) -> None:
    alone = plan_counting(machine(tmp_path / "a", x86("GenuineIntel", 6, 85), {"cpu": (4, INTEL, {})}), Tried())
    shared = plan_counting(machine(tmp_path / "b", x86("GenuineIntel", 6, 85), {"cpu": (4, INTEL, {})}, smt=1), Tried())
    assert alone.notes == [] and "sibling" in shared.notes[0]
    assert alone.table is not None and alone.table.definition.name == "Intel Skylake-SP / Cascade Lake"
    assert all(len(group) <= 6 for group in alone.groups)


def test_ice_lake_leads_with_slots_as_the_kernel_names_it(tmp_path: Path) -> None:
    found = plan_counting(machine(tmp_path, x86("GenuineIntel", 6, 106), {"cpu": (4, INTEL, METRICS)}), Tried())
    assert found.groups[0][0] == Event("slots", 4, 0x0400)
    assert found.groups[0][1] == Event("topdown_retiring", 4, 0x8000)
    assert [event.name for event in found.groups[0]][5:7] == ["cycles", "instructions"]
    assert found.table is not None and found.table.key == "ice-lake-sp"


@pytest.mark.parametrize(("model", "table"), [(106, "ice-lake-sp-guest"), (143, "sapphire-rapids-guest")])
def test_a_guest_without_slots_counts_other_events(tmp_path: Path, model: int, table: str) -> None:
    tree = machine(tmp_path, x86("GenuineIntel", 6, model, "fpu hypervisor"), {"cpu": (4, INTEL, {})})
    found = plan_counting(tree, Tried(lambda event: errno.EINVAL if event.name == "slots" else 0))
    assert found.table is not None and found.table.key == table
    assert "slots is not offered here" in found.notes[0]
    assert all(event.name != "slots" for group in found.groups for event in group)


def test_the_watchdog_takes_a_counter_of_amd(tmp_path: Path) -> None:
    cpu = x86("AuthenticAMD", 25, 17)
    free = plan_counting(machine(tmp_path / "a", cpu, {"cpu": (4, AMD, {})}), Tried())
    watched = plan_counting(
        machine(tmp_path / "b", cpu, {"cpu": (4, AMD, {})}, **{"proc/sys/kernel/nmi_watchdog": "1"}), Tried()
    )
    assert max(len(group) for group in free.groups) == 6
    assert max(len(group) for group in watched.groups) == 5 and len(watched.groups) > len(free.groups)


def test_the_watchdog_takes_a_counter_of_intel_whose_cycles_are_fixed(tmp_path: Path) -> None:
    """It keeps the fixed one: our cycles take one of the 4 programmable, and 3 are left beside them."""
    cpu = x86("GenuineIntel", 6, 85)
    free, watched, off = (
        plan_counting(machine(tmp_path / name, cpu, {"cpu": (4, INTEL, {})}, **files), Tried())
        for name, files in (
            ("a", {}),
            ("b", {"proc/sys/kernel/nmi_watchdog": "1"}),
            ("c", {"proc/sys/kernel/nmi_watchdog": "0"}),
        )
    )
    assert max(len(group) for group in free.groups) == 6 and off.groups == free.groups
    assert max(len(group) for group in watched.groups) == 5
    assert {event for group in watched.groups for event in group} == {event for group in free.groups for event in group}
    assert all([event.name for event in group[:2]] == ["cycles", "instructions"] for group in watched.groups)


def test_groups_that_are_refused_are_missing_and_said(tmp_path: Path) -> None:
    tree = machine(tmp_path, x86("AuthenticAMD", 25, 17), {"cpu": (4, AMD, {})})
    found = plan_counting(tree, Tried(lambda event: errno.EINVAL if event.name == "ex_ret_ucode_ops" else 0))
    assert len(found.groups) == 3 and found.notes == ["1 of 4 groups of events are refused and missing"]
    bare = plan_counting(tree, Tried(lambda event: errno.EINVAL if event.name not in ("cycles", "instructions") else 0))
    assert [[event.name for event in group] for group in bare.groups] == [["cycles", "instructions"]]
    assert bare.table is None and "no group of AMD Zen 4 can be counted" in bare.notes[0]


class FewCounters(Tried):
    """A guest that was given so many programmable counters; those of cycles and instructions are fixed."""

    def __init__(self, counters: int) -> None:
        super().__init__()
        self.counters = counters

    def __call__(self, events: Sequence[Event]) -> None:
        super().__call__(events)
        if sum(event.name not in ("cycles", "instructions") for event in events) > self.counters:
            raise PerfEventError(errno.EINVAL, "refused")


def test_groups_are_cut_where_a_guest_has_fewer_counters_than_its_processor(tmp_path: Path) -> None:
    """Skylake's tables need 4 programmable counters; with 3 every event is counted all the same, in more turns."""
    tree = machine(tmp_path, x86("GenuineIntel", 6, 85), {"cpu": (4, INTEL, {})})
    whole, few = plan_counting(tree, Tried()), plan_counting(tree, FewCounters(3))
    assert {event for group in few.groups for event in group} == {event for group in whole.groups for event in group}
    assert max(len(group) for group in few.groups) == 2 + 3 and len(few.groups) > len(whole.groups)
    assert few.table == whole.table and few.notes == whole.notes


def test_events_by_name_that_do_not_fit_together_take_turns(tmp_path: Path) -> None:
    tree = machine(tmp_path, x86("GenuineIntel", 6, 85), {"cpu": (4, INTEL, {})})
    names = ["r01", "r02", "r03", "r04", "r05"]
    found = plan_counting(tree, FewCounters(4), names)
    extra = [[event.name for event in group] for group in found.groups if any(one.name in names for one in group)]
    assert extra == [["cycles", "instructions", "r01", "r02"], ["cycles", "instructions", "r03", "r04", "r05"]]


def test_small_cores_stand_beside_the_large_ones(tmp_path: Path) -> None:
    pmus = {"cpu_core": (4, INTEL, METRICS), "cpu_atom": (10, INTEL, {})}
    found = plan_counting(machine(tmp_path, x86("GenuineIntel", 6, 151), pmus), Tried())
    assert found.groups[0][0] == Event("cycles", 0, 4 << 32)
    assert found.beside == [
        [Event("cycles_small_cores", 0, 10 << 32), Event("instructions_small_cores", 0, 10 << 32 | 1)]
    ]
    deaf = plan_counting(
        machine(tmp_path, x86("GenuineIntel", 6, 151), pmus), Tried(lambda e: errno.ENOENT * (e.config >> 32 == 10))
    )
    assert deaf.beside == [] and "not counted" in deaf.notes[-1]


def test_arm_takes_its_width_from_the_kernel(tmp_path: Path) -> None:
    cpuinfo = "processor : 0\nCPU implementer : 0x41\nCPU architecture: 8\nCPU variant : 0x1\nCPU part : 0xd40\n" \
              "CPU revision : 1\n"  # fmt: skip
    tree = machine(tmp_path, cpuinfo, {"armv8_pmuv3_0": (8, {"event": "config:0-15"}, {})},
                   **{f"{DEVICES}/armv8_pmuv3_0/caps/slots": "0x6"})  # fmt: skip
    found = plan_counting(tree, Tried())
    assert found.table is not None and found.table.definition.width == 6 and found.table.key == "neoverse-v1"
    assert found.groups[0][2] == Event("stall_slot_frontend", 8, 0x3E)
