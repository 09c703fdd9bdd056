"""Unused gradients: a backward computes gradients that are thrown away, or a forward makes a graph for no backward."""

from __future__ import annotations

from sonda.analysis.rules.advice import NoGrad
from sonda.analysis.rules.cause_findings import UnusedGradients, UnusedGraph
from sonda.analysis.rules.operations.evidence import TimedEvidence, evidence_of, layer_row, outermost
from sonda.analysis.rules.places import StepPlace
from sonda.analysis.rules.work import WORTH
from sonda.analysis.summary import Remedy, Summary, Value, Verdict
from sonda.record.evidence import UnreachedGraph

OF_WEIGHTS = 0.5
"""Of the backward of a layer whose input needs a gradient too: products of the same size for either."""
FROM_BELOW = WORTH / 2
"""What a graph costs is known from below only."""
PAGE = 4096
"""Bytes of memory that one page fault gives."""


def rule(summary: Summary) -> Verdict | None:
    """Fires when gradients that nobody uses take a tenth of the step or more, or unused graphs a twentieth."""
    evidence = evidence_of(summary)
    thrown = _thrown(summary, evidence) if evidence is not None else None
    return thrown or _graphs(summary)


def _thrown(summary: Summary, evidence: TimedEvidence) -> Verdict | None:
    spent, layers, sometimes = 0.0, [], False
    for module in evidence.step.thrown:
        row = layer_row(evidence.part, module.layer)
        if row is None or not row.backward.value:
            continue
        spent += row.backward.value * float(module.part) * (1.0 if module.first else OF_WEIGHTS)
        layers.append(module.layer)
        sometimes |= module.part < 1
    share = evidence.share(spent)
    if share < WORTH:
        return None
    named = tuple(_common(layers))
    called = evidence.step.call_lines
    line = next((called[layer] for layer in (named[0], *layers) if layer in called), "")
    place = StepPlace(named[0], line, "backward")
    of_step, time = Value(share, "1", "derived"), Value(spent, "ns", "derived")
    return Verdict(
        kind="unused_gradients",
        finding=UnusedGradients(of_step, time, place, named, sometimes),
        evidence={"share": of_step, "time": time},
        remedies=(Remedy(NoGrad(place, named, sometimes)),),
        share=share,
    )


def _common(layers: list[str]) -> list[str]:
    """The parts of the model that these layers are in: `backbone` in place of all layers of it."""
    parts = dict.fromkeys(layer.partition(".")[0] for layer in layers)
    return [_deepest([layer for layer in layers if layer.partition(".")[0] == part]) for part in parts]


def _deepest(layers: list[str]) -> str:
    """The longest path that all of these begin with."""
    words = [layer.split(".") for layer in layers]
    common = []
    for level in zip(*words, strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    return ".".join(common)


def _graphs(summary: Summary) -> Verdict | None:
    """Of all parts: an evaluation is judged by what it takes of all steps."""
    total = sum((part.total.value or 0.0) for part in summary.parts if part.total is not None)
    for number, part in enumerate(summary.parts):
        evidence = evidence_of(summary, part)
        if evidence is None or (number and not total):
            continue
        trains = any(row.name == "backward" for row in part.phases)
        weight = (part.total.value or 0.0) / total if number and part.total is not None else 1.0
        calls = [graph for graph in evidence.step.graphs if graph.unused]
        forward = sum(_forward_time(evidence, graph) for graph in calls)
        whole = weight * evidence.share(forward)
        saved = sum(_graph_cost(summary, evidence, graph) for graph in calls)
        share = weight * evidence.share(min(saved, forward))
        if share < FROM_BELOW:
            continue
        largest = max(calls, key=lambda graph: _forward_time(evidence, graph))
        place = StepPlace(largest.layer, largest.line, "forward")
        of_step, time = Value(share, "1", "derived"), Value(min(saved, forward), "ns", "derived")
        taken = Value(whole, "1", "derived")
        return Verdict(
            kind="unused_gradients",
            finding=UnusedGraph(of_step, time, place, taken, not trains),
            evidence={"share": of_step, "forward": taken, "time": time},
            remedies=(Remedy(NoGrad(place)),),
            share=share,
        )
    return None


def _forward_time(evidence: TimedEvidence, graph: UnreachedGraph) -> float:
    """ns a step of the calls whose graph nobody uses."""
    row = layer_row(evidence.part, graph.layer)
    phase = next((row.cost.time.value for row in evidence.part.phases if row.name == "forward"), None)
    spent = row.forward.value if row is not None and row.forward.value else phase
    return (spent or 0.0) * graph.unused / graph.calls


def _graph_cost(summary: Summary, evidence: TimedEvidence, graph: UnreachedGraph) -> float:
    """ns a step that making the graph costs at least: a node for every operation, and memory that is kept where it
    could have been used again."""
    inside = [
        timed.group for timed in evidence.groups
        if timed.group.phase == "forward" and timed.group.layer is not None
        and outermost([graph.layer, timed.group.layer]) == [graph.layer]
    ]  # fmt: skip
    ceilings = summary.ceilings
    if "operation" not in ceilings:
        return 0.0
    operations = sum(group.operations for group in inside)
    node = max(float(ceilings["training_operation"].value) - float(ceilings["operation"].value), 0.0)
    rows = [row for row in evidence.part.layers if outermost([graph.layer, row.path]) == [graph.layer]]
    kept = sum(row.activations.value or 0.0 for row in rows)
    memory = 1e9 * kept / float(ceilings["dram_bandwidth"].value)
    faults = evidence.part.counters.get("page_faults:counted")
    given = min(kept / PAGE, (faults.value or 0.0) if faults is not None else 0.0)
    memory += given * float(summary.workload.fault_ns or 0.0)
    return (operations * node + memory) * graph.unused / graph.calls
