"""What a terminal shows: one function per screen, each returns the text to print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sonda.analysis.comparison import Comparison
from sonda.analysis.summary import PartSummary, Remedy, Summary
from sonda.report import quantities
from sonda.report.comparison_tables import (
    changed_layers,
    layers_table,
    limit_words,
    one_sided_phrases,
    sides_words,
    step_and_phases_table,
    unchanged_words,
    verdict_words,
)
from sonda.report.device_tables import show_device
from sonda.report.energy import show_energy
from sonda.report.listing import checks_table
from sonda.report.modelled_tables import show_modelled
from sonda.report.nodes import show_nodes
from sonda.report.outside import show_outside
from sonda.report.over_time import show_over_time
from sonda.report.probed import show_probed
from sonda.report.program import show_program
from sonda.report.ranks import rank_phases_table, show_ranks
from sonda.report.screen import Screen
from sonda.report.simulated_tables import (
    choose_simulated,
    is_idle,
    layers_side_by_side,
    simulated_layer_table,
    stack_tables,
)
from sonda.report.summary_tables import (
    choose_layers,
    column_names,
    counter_phrases,
    layer_name,
    layer_table,
    phase_table,
    side_by_side_table,
)
from sonda.report.system_tables import show_second, show_system
from sonda.report.topdown_tables import show_counters
from sonda.report.training import show_training, trainings_table

SEPARATOR = " · "


def render_summary(
    summary: Summary,
    width: int | None = None,
    layers: int = 10,
    *,
    short: str = "",
    color: bool | None = None,
) -> str:
    """A run on one screen: verdict, the whole program, phases, layers, counters, warnings.

    `layers` is how many are listed; `short` is the id to type.
    """
    screen = Screen(width, color)
    show_verdicts(screen, summary)
    if summary.program is not None:
        show_program(screen, summary.program)
    if summary.training is not None:
        show_training(screen, summary.training)
    show_nodes(screen, summary.target)
    show_ranks(screen, summary.target)
    for index, part in enumerate(summary.parts):
        if is_idle(summary, part):
            continue
        screen.line()
        if len(summary.parts) > 1:
            screen.line(_part_words(part), "bold", 2)
        for number, table in enumerate(stack_tables(part) if part.simulated else (phase_table(part),)):
            if number:
                screen.line()
            screen.table(table)
        if part.ranks:
            screen.line()
            screen.table(rank_phases_table(part), reasons=False)
        # Layers of validation are the same modules again; the first part is the one that the verdict speaks of.
        if index == 0 and layers > 0 and part.layers:
            screen.line()
            _layers(screen, part, layers)
            _layers_of_others(screen, part, layers)
        show_counters(screen, part, layers if index == 0 else 0)
        show_system(screen, part)
        show_over_time(screen, part)
    show_device(screen, summary, layers)
    if summary.modelled is not None:
        show_modelled(screen, summary.modelled, layers)
    if summary.outside is not None:
        show_outside(screen, summary.outside)
    if summary.energy is not None:
        show_energy(screen, summary.energy)
    if summary.second is not None:
        show_second(screen, summary.second)
    show_probed(screen, summary.target)
    _below(screen, summary)
    screen.saved(short or summary.run)
    return screen.text()


def render_side_by_side(
    summaries: Sequence[Summary],
    names: Sequence[str] = (),
    width: int | None = None,
    layers: int = 10,
    *,
    saved: Sequence[str] = (),
    color: bool | None = None,
) -> str:
    """Several runs, one column each, the fastest marked; `names` head the columns, else the targets.

    Where one is simulated, its layers stand beside those of the others, `layers` of them. `saved` are ids to type.
    """
    screen = Screen(width, color)
    heads = list(names) or column_names(summaries)
    titles = list(dict.fromkeys(summary.title for summary in summaries))
    screen.line(SEPARATOR.join(titles), "bold")
    screen.line()
    for head, summary in zip(heads, summaries, strict=True):
        screen.line(f"{head}: {summary.verdicts[0].sentence}", "", 2, 2)
    screen.line()
    trainings = trainings_table(summaries, heads)
    if trainings is not None:
        screen.table(trainings)
        screen.line()
    screen.table(side_by_side_table(summaries, heads))
    screen.line()
    if any(part.simulated for summary in summaries for part in summary.parts):
        screen.table(layers_side_by_side(summaries, heads, layers), reasons=False)
        screen.line()
    for head, summary in zip(heads, summaries, strict=True):
        for warning in summary.warnings:
            screen.line(f"! {head}: {warning}", "yellow", 2, 2)
    if saved:
        screen.line(f"Saved as runs {' '.join(saved)}. Page: sonda report {' '.join(saved)}", "", 2, 2)
    return screen.text()


def render_comparison(
    comparison: Comparison,
    width: int | None = None,
    layers: int = 10,
    *,
    fail_above: float | None = None,
    asked: tuple[str, str] | None = None,
    color: bool | None = None,
) -> str:
    """B against A: step, phases, the layers that changed; `fail_above` 0.05 adds whether 5 % is passed, `asked` are the
    names to type for both sides."""
    screen = Screen(width, color)
    show_comparison(screen, comparison, layers, fail_above)
    if asked is not None:
        screen.line()
        screen.line(f"Page of both: sonda report {' '.join(asked)}", "", 2, 2)
    return screen.text()


def show_comparison(
    screen: Screen, comparison: Comparison, layers: int = 10, fail_above: float | None = None
) -> None:  # fmt: skip
    """The same on a screen, or on a sheet of a notebook."""
    screen.line(sides_words(comparison), "bold")
    screen.line()
    screen.line(verdict_words(comparison), "bold", 2, 2)
    if fail_above is not None:
        fails = comparison.fails(fail_above)
        said = limit_words(comparison.slowdown, fails, fail_above, comparison.exact)
        screen.line(said, "red" if fails else "", 2, 2)
    for part in comparison.parts:
        screen.line()
        if len(comparison.parts) > 1:
            screen.line(part.name, "bold", 2)
        screen.table(step_and_phases_table(part))
        changed = changed_layers(part, layers)
        total = sum(row.significant for row in part.layers)
        if changed:
            screen.line()
            screen.table(layers_table(changed, f"layer ({len(changed)} of {total} changed)"))
        if part.layers:
            screen.line(unchanged_words(part, comparison.exact), "dim", 2, 2)
        for phrase in one_sided_phrases(part):
            screen.line(phrase, "dim", 2, 2)
    if comparison.notes or comparison.warnings:
        screen.line()
    for note in comparison.notes:
        screen.line(note, "dim", 2, 2)
    for warning in comparison.warnings:
        screen.line(f"! {warning}", "yellow", 2, 2)


def render_doctor(
    checks: Iterable[tuple[str, str, str, str]], width: int | None = None, *, color: bool | None = None
) -> str:
    """Checks as (name, state, detail, remedy); the remedies of what does not work stand below, one line each."""
    rows = list(checks)
    screen = Screen(width, color)
    good = sum(state == "ok" for _, state, _, _ in rows)
    lacking = [name for name, state, _, _ in rows if state in ("missing", "dead", "off")]
    without = f" Without: {', '.join(lacking)}." if lacking else ""
    screen.line(f"{good} of {len(rows)} checks are fine.{without}", "bold")
    screen.line()
    screen.table(checks_table([row[:3] for row in rows]), indent=0)
    remedies = [(name, remedy) for name, _, _, remedy in rows if remedy]
    if remedies:
        screen.line()
        screen.line("What would change that", "bold")
        for name, remedy in remedies:
            screen.line(f"{name}: {remedy}", "", 2, 2)
    screen.line()
    screen.line("Next: sonda doctor --validate counts known work with every probe; sonda run resnet18 --train", "dim")
    return screen.text()


def show_verdicts(screen: Screen, summary: Summary) -> None:
    """What ran on what, what limits it, and what to try."""
    words = [text for text in (summary.title, summary.subtitle) if text]
    if summary.status != "complete":
        words.append(summary.status)
    screen.line(SEPARATOR.join(words), "bold")
    screen.line()
    for index, verdict in enumerate(summary.verdicts):
        screen.line(verdict.sentence, "bold" if index == 0 else "", 2, 2)
    remedies = dict.fromkeys(remedy for verdict in summary.verdicts for remedy in verdict.remedies)
    if remedies:
        screen.items("Try: ", [remedy_words(remedy) for remedy in remedies])


def remedy_words(remedy: Remedy) -> str:
    """`--threads 2  1.63x (measured)`; not yet tried: its text; not a flag away: the text alone."""
    options = " ".join(remedy.options)
    if remedy.speedup is not None:
        return f"{options or remedy.text}  {quantities.factor(remedy.speedup)}"
    return f"{options} ({remedy.text})" if options else remedy.text


def _simulated_layers(screen: Screen, part: PartSummary, limit: int) -> None:
    choice = choose_simulated(part, limit)
    rest = choice.total - len(choice.shown)
    title = f"layer ({len(choice.shown)} of {choice.total})" if rest else "layer"
    if choice.shown:
        screen.table(simulated_layer_table(choice.shown, title))
    if rest:
        screen.line(f"not above: the other {rest:,} layers {choice.rest:,.0f} cycles", "dim", 2, 2)


def _layers(screen: Screen, part: PartSummary, limit: int) -> None:
    if part.simulated is not None:
        _simulated_layers(screen, part, limit)
        return
    choice = choose_layers(part, limit)
    if not choice.shown:
        return
    title = f"layer ({len(choice.shown)} of {choice.leaves})" if choice.leaves > len(choice.shown) else "layer"
    screen.table(layer_table(choice.shown, title))
    rest = []
    if choice.leaves > len(choice.shown):
        rest.append(f"the other {choice.leaves - len(choice.shown):,} layers {_time(choice.rest.value)}")
    if choice.containers.value:
        most = choice.container
        of_it = f", {_time(most.own.value)} of it in {layer_name(most)}" if most is not None and most.own.value else ""
        rest.append(f"code of modules around the layers {_time(choice.containers.value)}{of_it}")
    if rest:
        screen.line("not above: " + SEPARATOR.join(rest), "dim", 2, 2)


def _rates(part: PartSummary) -> list[str]:
    """`44.9 samples/s`, and tokens where the workload has them."""
    rates = {"samples/s": part.samples_per_second, "tokens/s": part.tokens_per_second}
    rates |= {f"tokens/s in {name}": rate for name, rate in part.phase_tokens.items()}
    return [f"{quantities.number(rate.value)} {name} ({rate.source})" for name, rate in rates.items()
            if rate.value and quantities.known(rate)]  # fmt: skip


def _below(screen: Screen, summary: Summary) -> None:
    facts = [*_rates(summary.parts[0]), *counter_phrases(summary.parts[0])] if summary.parts else []
    screen.line()
    if facts:
        screen.items("", facts, SEPARATOR)
    for note in summary.notes:
        screen.line(note, "dim", 2, 2)
    for warning in summary.warnings:
        screen.line(f"! {warning}", "yellow", 2, 2)


def _part_words(part: PartSummary) -> str:
    warmup = f" after {part.warmup:,} warm-up" if part.warmup else ""
    steps = f"{part.steps:,} step{'' if part.steps == 1 else 's'}{warmup}"
    pieces = [steps, f"{quantities.amount(part.step.value, part.step.unit)} each", quantities.spread(part.step)]
    return f"{part.name}: {', '.join(piece for piece in pieces if piece)}"


def _time(nanoseconds: float | None) -> str:
    return quantities.amount(nanoseconds, "ns")


def _layers_of_others(screen: Screen, part: PartSummary, limit: int) -> None:
    """Layers that only ranks beside the critical one have: stages of a pipeline."""
    for one in part.ranks:
        choice = choose_layers(replace(part, layers=one.layers), limit)
        if choice.shown:
            some = f" ({len(choice.shown)} of {choice.leaves})" if choice.leaves > len(choice.shown) else ""
            screen.line()
            screen.table(layer_table(choice.shown, f"layer of rank {one.rank}{some}"))
