"""One way makes every run: what is called when, what instruments add, and who is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from sonda.record.errors import SondaError
from sonda.record.progress import Say
from sonda.record.run import ProbeState
from sonda.record.samples import Sample
from sonda.record.spans import Spans, Words
from sonda.record.store import Store
from sonda.record.target import WorkloadTarget
from sonda.record.workload import Workload
from sonda.targets.instrument import (
    AROUND,
    Circumstances,
    Contribution,
    EndedRun,
    Instrument,
    Launcher,
    Observation,
    RunPlan,
)
from sonda.targets.instruments.energy import EnergyInstrument
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.pipeline import RunLabels, make_run


class Fake(Launcher):
    """Runs nothing; it and its instruments write down what is called."""

    kind = "fake"
    offers = frozenset({AROUND})

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.environment: dict[str, str] = {}
        self.directory = Path()

    def plan(self, store: Store, directory: Path, say: Say) -> RunPlan:
        self.calls.append("plan")
        self.directory = directory
        return RunPlan(self.kind, store, directory, say)

    @contextmanager
    def around(self, plan: RunPlan) -> Iterator[None]:
        self.calls.append("hold")
        yield
        self.calls.append("let go")

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        self.calls.append("launch")
        self.environment = dict(environment)

    def observe(self, plan: RunPlan) -> Observation:
        self.calls.append("observe")
        spans = Spans({"start": np.zeros(1), "duration": np.ones(1)}, {"kind": Words.of(["run"])})
        probes = [ProbeState("a", "off"), ProbeState("clock", "ok")]
        known = Circumstances("2026-01-01T00:00:00+00:00", {"processor": "x"}, {"sonda": "0"}, probes, ["machine"])
        return Observation(
            spans,
            Workload(name="w"),
            WorkloadTarget(spec="s", device="cpu"),
            known,
            exit_code=3,
            complete=False,
            notes=["program"],
        )

    def close(self) -> None:
        self.calls.append("close")
        assert self.directory.is_dir(), "the directory outlives the launcher"


class Reads(Instrument):
    """Adds a column that holds how many metrics there were before."""

    needs = frozenset({AROUND})

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name, self.calls = name, calls

    def prepare(self, plan: RunPlan) -> Mapping[str, str]:
        self.calls.append(f"prepare {self.name}")
        return {"LAST": self.name, self.name: "1"}

    @contextmanager
    def around(self, plan: RunPlan) -> Iterator[None]:
        self.calls.append(f"enter {self.name}")
        yield
        self.calls.append(f"leave {self.name}")

    def collect(self, seen: EndedRun) -> Contribution:
        self.calls.append(f"collect {self.name}")
        assert seen.plan.directory.is_dir()
        seen.spans.metrics[f"{self.name}:counted"] = np.full(1, float(len(seen.spans.metrics)))
        return Contribution(
            seen.spans, {self.name: 1}, [ProbeState(self.name, "ok")], [self.name],
            [Sample(0, self.name, 1.0, "1", "counted")],
        )  # fmt: skip


def test_instruments_are_called_in_order_and_add_to_one_run(tmp_path: Path) -> None:
    launcher = Fake()
    instruments = [Reads(name, launcher.calls) for name in ("a", "b")]
    run = make_run(launcher, instruments, Store(tmp_path), RunLabels("0123456789ab", group="g"))
    assert launcher.calls == [
        "plan", "prepare a", "prepare b", "hold", "enter a", "enter b", "launch", "leave b", "leave a", "let go",
        "observe", "collect a", "collect b", "close",
    ]  # fmt: skip
    assert launcher.environment == {"LAST": "b", "a": "1", "b": "1"} and not launcher.directory.exists()
    info = run.info
    assert (info.id, info.group, info.status, info.exit_code, info.seed) == ("0123456789ab", "g", "incomplete", 3, None)
    assert info.target == WorkloadTarget(spec="s", device="cpu", added={"a": 1, "b": 1})
    assert (info.kind, info.workload) == ("workload", Workload(name="w"))
    assert info.notes == ["machine", "program", "a", "b"]
    # What an instrument says of itself takes the place of what was said before it.
    assert [(one.name, one.state) for one in info.probes] == [("clock", "ok"), ("a", "ok"), ("b", "ok")]
    assert (run.spans.metric("a", "counted")[0], run.spans.metric("b", "counted")[0]) == (0.0, 1.0)
    assert [one.sensor for one in run.samples] == ["a", "b"]


def test_a_launcher_that_fails_is_closed_and_keeps_nothing(tmp_path: Path) -> None:
    launcher = Fake()

    def fail(plan: RunPlan, environment: Mapping[str, str]) -> None:
        raise SondaError("it died")

    launcher.launch = fail  # type: ignore[method-assign]
    with pytest.raises(SondaError, match="it died"):
        make_run(launcher, [], Store(tmp_path))
    assert launcher.calls[-1] == "close" and not launcher.directory.exists()
    assert not list(tmp_path.glob("*/run.json"))


def test_a_probe_is_refused_where_the_launcher_does_not_offer_what_it_needs() -> None:
    assert [type(instrument) for instrument in instruments_for("energy", Fake())] == [EnergyInstrument]
    for word in ("pmu", "callgrind:2MiB", "perf-stat", "ncu"):
        with pytest.raises(SondaError, match=f"^--probe {word} cannot be read of a fake run"):
            instruments_for(f"energy,{word}", Fake())
