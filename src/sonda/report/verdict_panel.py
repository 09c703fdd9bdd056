"""The top of a run's section: what limits it, the numbers behind that, what to try, and the step in figures."""

from __future__ import annotations

from sonda.analysis.summary import PartSummary, Remedy, Summary, Value, Verdict
from sonda.report import quantities
from sonda.report.labels import markup
from sonda.report.markup import to_try
from sonda.report.simulated_tables import energy_cell, is_idle

NAMES = {
    "share": "part of the step", "of_peak": "of the peak", "of_bandwidth": "of the bandwidth",
    "of_time": "of their time", "operation_cost": "cost of an operation", "spent": "of their cycles",
    "busy": "GPU busy", "of_program": "part of the program", "steps_of_program": "steps' part of the program",
    "noise": "half of the interval of a step",
}  # fmt: skip
"""What the numbers behind a verdict are called on the page, where their own names say too little."""
RATIOS = ("IPC", "imbalance")
"""Numbers without unit that are no parts of a whole."""


def verdict_panel(summary: Summary) -> str:
    """Verdicts, most important first, each with its numbers; remedies; warnings; the first part's step."""
    kind = summary.verdicts[0].kind if summary.verdicts else "none"
    lines = []
    for index, verdict in enumerate(summary.verdicts):
        lines.append(f"<p{' class=first' if index == 0 else ''}>{markup(verdict.sentence)}</p>{evidence(verdict)}")
    lines.append(remedies(summary.verdicts))
    if summary.parts and not is_idle(summary, summary.parts[0]):
        lines.append(_facts(summary.parts[0]))
    lines += [f'<p class="warning">{markup(warning)}</p>' for warning in summary.warnings]
    return f'<div class="panel verdict {markup(kind)}">' + "\n".join(line for line in lines if line) + "</div>"


def evidence(verdict: Verdict) -> str:
    """The numbers that a verdict rests on; '' without any."""
    items = "".join(
        f"<li{_told(quantities.provenance(value))}>"
        f"{markup(NAMES.get(name, name.replace('_', ' ')))} <strong>{markup(_shown(name, value))}</strong></li>"
        for name, value in verdict.evidence.items()
        if quantities.known(value)
    )
    return f'<ul class="evidence" aria-label="numbers behind this">{items}</ul>' if items else ""


def remedies(verdicts: tuple[Verdict, ...]) -> str:
    """What to try; '' where nothing is known to."""
    found = list(dict.fromkeys(remedy for verdict in verdicts for remedy in verdict.remedies))
    untried = any(one.options and one.speedup is None for one in found)
    how = "options of sonda run; with --try Sonda tries them and says what each brings" if untried else ""
    return to_try(map(_remedy, found), how)


def _shown(name: str, value: Value) -> str:
    if value.unit == "1" and value.source != "counted" and name not in RATIOS:
        return f"{quantities.percent(value.value)} %"
    return quantities.amount(value.value, value.unit)


def _remedy(remedy: Remedy) -> str:
    options = f"<code>{markup(' '.join(remedy.options))}</code> " if remedy.options else ""
    result = f" <strong>{markup(quantities.factor(remedy.speedup))}</strong>" if remedy.speedup else ""
    return f"{options}{markup(remedy.text)}{result}"


def _facts(part: PartSummary) -> str:
    facts = [("time of a step", part.step, quantities.spread(part.step)), ("samples/s", part.samples_per_second, "")]
    facts.append(("tokens/s", part.tokens_per_second, ""))
    boxes = [_fact(name, value, note) for name, value, note in facts if quantities.known(value)]
    if part.simulated is not None:
        whole = part.simulated
        boxes.insert(
            0, _box("cycles of a step", f"{whole.cycles.value or 0.0:,.0f}", quantities.provenance(whole.cycles))
        )
        energy = energy_cell(whole.energy)
        boxes.append(_box("energy of a step", markup(energy.text), energy.hint))
        return f'<dl class="facts">{"".join(boxes)}</dl>'
    after = f" <small>after {part.warmup:,} warm-up</small>" if part.warmup else ""
    boxes.append(_box("timed steps", f"{part.steps:,}{after}", "steps that the numbers are medians of, counted"))
    return f'<dl class="facts">{"".join(boxes)}</dl>'


def _fact(name: str, value: Value, note: str) -> str:
    unit = value.unit if value.unit == "ns" else "1"
    small = f" <small>{markup(note)}</small>" if note else ""
    return _box(name, markup(quantities.amount(value.value, unit)) + small, quantities.provenance(value))


def _box(name: str, html: str, hint: str) -> str:
    return f"<div{_told(hint)}><dt>{markup(name)}</dt><dd>{html}</dd></div>"


def _told(hint: str) -> str:
    """Attributes of a number that a reader can walk to; guesses are hatched as in tables."""
    return f' tabindex="0"{" class=estimated" if quantities.is_guess(hint) else ""} title="{markup(hint)}"'
