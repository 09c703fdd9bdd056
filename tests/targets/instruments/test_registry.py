"""The list of probes: what help, pages and launchers say of them follows from it, or is held against it."""

from __future__ import annotations

import re

import pytest

from help_cases import ALL
from places import REPOSITORY
from sonda.targets import instrument
from sonda.targets.corun.launcher import CorunLauncher
from sonda.targets.instruments.registry import BUILT_IN, describe_probes, instruments_for, needs_of
from sonda.targets.program.launcher import ProgramLauncher, WatchSettings
from sonda.targets.serving.launcher import ServingLauncher

DOCS = REPOSITORY / "docs"
PAGE = (DOCS / "rooms" / "targets.md").read_text(encoding="utf-8")


def table(head: str, page: str = PAGE) -> list[list[str]]:
    """The cells of a table of a page, without its head."""
    rows = page.split(head)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def help_on(command: str) -> str:
    (option,) = (parameter for parameter in ALL[command].params if "--probe" in parameter.opts)
    return str(option.help)


def test_the_page_of_the_room_lists_every_probe_with_its_file_and_its_needs() -> None:
    rows = table("| instrument | probes | needs |")
    listed = [(name, *quoted(file), {getattr(instrument, need) for need in quoted(needs)})
              for file, names, needs in rows for name in quoted(names)]  # fmt: skip
    assert listed == [
        (name, f"instruments/{probe.instrument.partition(':')[0]}.py", needs_of(name))
        for name, probe in BUILT_IN.items()
    ]


@pytest.mark.parametrize("launcher", [CorunLauncher, ServingLauncher])
def test_the_page_lists_what_can_be_read_of_a_run(launcher: type[instrument.Launcher]) -> None:
    (row,) = (row for row in table("| launcher | offers |") if quoted(row[0]) == [launcher.kind])
    assert {getattr(instrument, need) for need in quoted(row[1])} == launcher.offers
    assert quoted(row[2]) == [name for name in BUILT_IN if needs_of(name) <= launcher.offers]


def test_every_probe_is_shown_to_users_and_no_other_is() -> None:
    shown = {name for page in DOCS.glob("*.md") for name in re.findall(r"--probe ([a-z-]+)", page.read_text())}
    assert [name for name in BUILT_IN if name not in shown] == []
    counters = table("| probe | gives | of | needs |", (DOCS / "counters.md").read_text())
    assert [name for row in counters for name in quoted(row[0]) if name not in BUILT_IN] == []


def test_help_says_of_every_probe_what_the_list_says() -> None:
    assert describe_probes(tuple(BUILT_IN)) in help_on("run")
    readable = [name for name in BUILT_IN if needs_of(name) <= ServingLauncher.offers]
    assert describe_probes(readable) in help_on("serve")


def test_instruments_stand_in_the_order_of_the_list_and_share_their_words() -> None:
    words = [name + (":cpu=20..95" if name == "energy-model" else "") for name in reversed(BUILT_IN)]
    made = instruments_for(words, ProgramLauncher(["true"], WatchSettings()))
    classes = dict.fromkeys(probe.instrument.partition(":")[2] for probe in BUILT_IN.values())
    assert [type(one).__name__ for one in made] == list(classes)
