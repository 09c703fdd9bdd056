"""One run of several nodes: spans, energy and machines of each, on clocks that are never compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from plain_runs import machine_of, run_info, target_of
from sonda.analysis.energy.run import summarise_energy
from sonda.analysis.rules.advice import UseAllCoresInRanks
from sonda.analysis.rules.remedies import threads
from sonda.analysis.run_summary import summarise
from sonda.analysis.steps.training import summarise_training
from sonda.record.nodes import NodePart, by_node, merge_nodes
from sonda.record.run import Run, now, write_run
from sonda.record.samples import Sample
from sonda.record.spans import Spans, Words
from sonda.record.stored import plain
from sonda.report.blocks import Detail
from sonda.report.page import page_text
from sonda.report.views.counters.sensors import probed_table
from sonda.report.views.steps.view import StepsView
from sonda.report.words import describe

S = 1_000_000_000
COUNTER = {"sensor": "package-0 energy", "device": "cpu", "covers": "CPU packages", "total": True, "state": "ok"}


def part(node: str, rank: int, shift: int, seconds: int, watts: float, **more: Any) -> NodePart:
    """A node whose run lasted some seconds at so many watts; its one epoch of 4 s begins `shift` s after its start."""
    spans = Spans(
        {
            "start": np.array([0, shift * S, shift * S, (shift + 1) * S]),
            "duration": np.array([seconds * S, 4 * S, 4 * S, S]),
            "parent": np.array([-1, 0, 1, 2]),
            "rank": np.full(4, rank),
        },
        {"kind": Words.of(["run", "part", "epoch", "step"]), "name": Words.of(["", "train", "train", ""])},
        {"loss:measured": np.array([np.nan, np.nan, 0.5, np.nan])},
    )
    samples = [
        Sample(at * S, "package-0 energy", watts * (at + 2), "J", "measured") for at in range(-2, seconds + 1)
    ]  # fmt: skip
    metered = {"counters": [{**COUNTER, "highest": 1e6}], "idle": [-2 * S, 0], "interval": 1.0, "readings": 9}
    settings: dict[str, Any] = {
        "id": "ab12", "created": now(), "status": "complete", "workload": {"name": "mlp"},
        "target": {"device": "cpu", "ranks": [{"rank": rank, "device": "cpu/1"}], "metered": metered},
        "machine": {"processor": f"processor of {node}"}, "versions": {"torch": "2.13"}, "notes": ["said by all"],
    }  # fmt: skip
    return NodePart(node, run_info(**{**settings, **more}), spans, samples)


@pytest.fixture
def two(tmp_path: Path) -> Run:
    """Node `left` at 10 W for 10 s, node `right` at 30 W for 8 s; their clocks have nothing to do with each other."""
    parts = [part("left", 0, 5, 10, 10.0), part("right", 1, 2, 8, 30.0, disturbed=["others ran"])]
    whole = merge_nodes(parts)
    return write_run(tmp_path, whole.info, whole.spans, whole.samples)


def test_every_span_keeps_its_node_its_clock_and_its_parents(two: Run) -> None:
    spans = two.spans
    assert spans.words("node").decoded().tolist() == ["left"] * 4 + ["right"] * 4
    assert spans.number("start").tolist() == [0, 5 * S, 5 * S, 6 * S, 0, 2 * S, 2 * S, 3 * S]
    assert spans.number("parent").tolist() == [-1, 0, 1, 2, -1, 4, 5, 6]
    assert [rank.node for rank in two.info.target.ranks] == ["left", "right"]
    assert [node.machine.processor for node in two.info.target.nodes] == [
        "processor of left", "processor of right",
    ]  # fmt: skip
    assert two.info.notes == [
        "said by all", "2 nodes (left, right): times count from each node's own beginning, on its own clock",
    ]  # fmt: skip
    assert two.info.disturbed == ["node right: others ran"]


def test_a_run_is_taken_apart_into_what_it_was_made_of(two: Run) -> None:
    made = [part("left", 0, 5, 10, 10.0), part("right", 1, 2, 8, 30.0)]
    found = by_node(two)
    assert [name for name, _ in found] == ["left", "right"]
    for (name, run), own in zip(found, made, strict=True):
        for column in ("start", "duration", "parent", "rank"):
            assert run.spans.number(column).tolist() == own.spans.number(column).tolist(), (name, column)
        assert [(one.time, one.value) for one in run.samples] == [(one.time, one.value) for one in own.samples]
        assert run.info.target.metered == own.info.target.metered
    assert two.info.target.metered is None, "samples of two nodes under one device are no counter"


def test_what_added_probes_read_on_each_node_says_whose_it_is() -> None:
    row = {"probe": "load", "sensor": "load", "device": "", "unit": "1", "source": "measured", "readings": 3}
    parts = [
        part(node, rank, 0, 5, 1.0, target={"ranks": [], "probed": [{**row, "mean": 1.0, "least": 1.0, "most": most}]})
        for rank, (node, most) in enumerate((("left", 2.0), ("right", 3.0)))
    ]
    probed = merge_nodes(parts).info.target.probed
    assert [(one.node, one.most) for one in probed] == [("left", 2.0), ("right", 3.0)]
    table = probed_table(probed)
    assert table is not None and [row[0].text for row in table.rows] == [
        "load: load on left", "load: load on right",
    ]  # fmt: skip


def test_energy_is_each_nodes_own_added(two: Run) -> None:
    """10 W x 10 s + 30 W x 8 s = 340 J; the epoch is 4 s on both: 40 + 120 J; idle 10 and 30 W, so nothing above."""
    found = summarise_energy(two)
    assert found is not None
    cost = found.all["measured"]
    assert cost.energy.value == pytest.approx(340.0)
    assert cost.power.value == pytest.approx(40.0)
    assert cost.above.value == pytest.approx(0.0, abs=1e-9)
    assert cost.product.value == pytest.approx(3400.0), "J·s, by the first node's 10 s"
    assert [one.name for one in found.devices] == ["left cpu", "right cpu"]
    epoch = next(one for one in found.windows if one.kind == "epoch")
    assert epoch.total.value == pytest.approx(160.0)
    assert {name: value.value for name, value in epoch.devices.items()} == pytest.approx(
        {"left cpu": 40.0, "right cpu": 120.0}
    )
    said = "340 J measured on 2 nodes, 10.0 s of the whole run on the first: CPU packages; not "
    assert describe(found.finding).startswith(said)
    training = summarise_training(two)
    assert training is not None and training.energy is not None
    assert training.energy.used.value == pytest.approx(160.0)
    assert [one.value for one in training.energy.used_to] == pytest.approx([160.0])


def test_a_node_without_energy_leaves_no_silent_zero(tmp_path: Path) -> None:
    bare = part("right", 1, 2, 8, 30.0)
    target = msgspec.structs.replace(bare.info.target, metered=None)
    bare = NodePart("right", msgspec.structs.replace(bare.info, target=target), bare.spans, [])
    whole = merge_nodes([part("left", 0, 5, 10, 10.0), bare])
    found = summarise_energy(write_run(tmp_path, whole.info, whole.spans, whole.samples))
    assert found is not None
    assert found.all["measured"].energy.value is None
    assert describe(found.finding) == "The measured energy of all nodes is not known: node right: nothing measured."


def test_other_versions_and_a_node_of_which_nothing_came_are_said(tmp_path: Path) -> None:
    whole = merge_nodes(
        [part("left", 0, 5, 10, 10.0), part("right", 1, 2, 8, 30.0, versions={"torch": "2.12"})], ["third"]
    )
    assert whole.info.status == "incomplete"
    assert whole.info.notes[1:] == [
        "3 nodes (left, right, third): times count from each node's own beginning, on its own clock",
        "nothing came from node third: its ranks are missing",
        "node right has other versions: torch 2.12 (not 2.13)",
    ]


def test_screen_document_and_page_name_the_nodes(two: Run) -> None:
    summary = summarise(two)
    lines = [line.split() for line in StepsView(summary).text(120, detail=Detail.ALL).splitlines()]
    assert ["left", "0", "processor", "of", "left", "10.0"] in lines
    assert ["right", "1", "processor", "of", "right", "8.0"] in lines
    assert StepsView(summary).document()["nodes"][1] == {
        "node": "right", "ranks": [1], "processor": "processor of right",
        "time": {"value": 8 * S, "unit": "ns", "source": "measured"},
    }  # fmt: skip
    page = page_text([summary], [two])
    assert "processor of right" in page and ">Nodes<" in page


def test_the_energy_of_a_run_that_lost_a_node_is_not_known(tmp_path: Path) -> None:
    """10 W for 10 s on the node that is left: 100 J, which are not those of both."""
    whole = merge_nodes([part("left", 0, 5, 10, 10.0)], ["right"])
    run = write_run(tmp_path, whole.info, whole.spans, whole.samples)
    energy = summarise_energy(run)
    assert energy is not None and energy.all["measured"].energy.value is None
    assert describe(energy.finding) == "The measured energy of all nodes is not known: node right: nothing measured."
    trained = summarise_training(run)
    assert trained is not None and trained.energy is not None
    assert (trained.energy.used.value, trained.energy.used.reason) == (None, "node right: no energy was read")
    assert "node right" in StepsView(summarise(run)).text(120, detail=Detail.ALL)


# ---- nodes that are processes of one machine --------------------------------------------------------------------

BOARD = {**COUNTER, "sensor": "energy", "device": "cuda:0", "covers": "GPU boards with their memory", "highest": 1e6}


def with_gpu(node: NodePart, seconds: int, watts: float) -> NodePart:
    """The node with a GPU that it trains on."""
    metered = plain(node.info.target.metered)
    metered |= {"counters": [*metered["counters"], BOARD], "used": ["cpu", "cuda:0"]}
    info = msgspec.structs.replace(node.info, target=node.info.target.extended({"metered": metered}))
    samples = [
        Sample(at * S, "energy", watts * (at + 2), "J", "measured", device="cuda:0") for at in range(-2, seconds + 1)
    ]  # fmt: skip
    return NodePart(node.node, info, node.spans, [*node.samples, *samples])


def test_a_machine_that_plays_two_nodes_is_counted_once(tmp_path: Path) -> None:
    """10 W for the 10 s of the first, 40 J in its epoch of 4 s; the second has read the same counter. It alone has
    used the GPU, which both have read: 50 W, so 500 J more, and 200 in the epoch."""
    parts = [with_gpu(part("left", 0, 5, 10, 10.0), 10, 50.0), with_gpu(part("right", 1, 2, 8, 10.0), 8, 50.0)]
    first = parts[0].info
    first.target = first.target.extended({"metered": {**plain(first.target.metered), "used": ["cpu"]}})
    whole = merge_nodes(parts, same={"left": "left", "right": "left"})
    assert whole.info.notes[-1] == "nodes left, right are processes of one machine and share what it has"
    run = write_run(tmp_path, whole.info, whole.spans, whole.samples)
    energy, training = summarise_energy(run), summarise_training(run)
    assert energy is not None and training is not None and training.energy is not None
    assert [one.name for one in energy.devices] == ["cpu", "cuda:0"]
    assert energy.all["measured"].energy.value == energy.used["measured"].energy.value == pytest.approx(600.0)
    assert training.energy.used.value == training.energy.all.value == pytest.approx(240.0)
    said = "nodes left and right are processes of one machine and read the same sensors, so its energy counts once"
    assert said in map(describe, energy.notes)


def test_some_nodes_of_one_machine_and_one_of_its_own(tmp_path: Path) -> None:
    """10 W x 10 s and 30 W x 8 s, as with two nodes; of the one that was lost its machine is known."""
    parts = [part("left", 0, 5, 10, 10.0), part("other", 1, 5, 10, 10.0), part("right", 2, 2, 8, 30.0)]
    same = dict.fromkeys(("left", "other", "gone"), "left")
    whole = merge_nodes(parts, ["gone"], same)
    run = write_run(tmp_path, whole.info, whole.spans, whole.samples)
    energy, training = summarise_energy(run), summarise_training(run)
    assert energy is not None and training is not None and training.energy is not None
    assert energy.all["measured"].energy.value == pytest.approx(340.0)
    assert training.energy.used.value == pytest.approx(160.0)
    assert "340 J measured on 4 nodes of 2 machines, 10.0 s of the whole run on the first: CPU" in describe(
        energy.finding
    )


def test_a_gpu_of_one_node_is_in_the_sum_and_said_to_be(tmp_path: Path) -> None:
    """340 J as above and 50 W x 8 s of the GPU: 740 J; in the epoch 160 + 200 J."""
    parts = [part("left", 0, 5, 10, 10.0), with_gpu(part("right", 1, 2, 8, 30.0), 8, 50.0)]
    whole = merge_nodes(parts)
    run = write_run(tmp_path, whole.info, whole.spans, whole.samples)
    energy, training = summarise_energy(run), summarise_training(run)
    assert energy is not None and training is not None and training.energy is not None
    assert energy.all["measured"].energy.value == pytest.approx(740.0)
    assert training.energy.used.value == pytest.approx(360.0)
    covers = ("CPU packages", "GPU boards with their memory (on right)")
    assert energy.covers == training.energy.covers == covers
    assert energy.not_covered[-1] == "left GPU boards with their memory"
    assert "CPU packages and GPU boards with their memory (on right); not DRAM, disks, " in describe(energy.finding)


def test_threads_are_advised_per_rank_and_only_where_cores_are_free(two: Run) -> None:
    """A rank with a thread on each of two machines with four cores; or both on one machine, whose cores they share."""
    summary = summarise(two)
    seen = replace(summary, machine=machine_of({"logical_cores": 4}),
                   target=target_of({**summary.target.plain(), "mode": "ddp", "threads": 1}))  # fmt: skip
    remedy = threads(seen)
    assert remedy is not None and (remedy.advice, remedy.options) == (UseAllCoresInRanks(4, 4), ())
    assert (
        threads(replace(seen, target=seen.target.extended({"same_machine": {"left": "left", "right": "left"}}))) is None
    )
