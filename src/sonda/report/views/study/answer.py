"""What a study answers, in sentences with their numbers: the same way for every study.

A question is answered by few figures, which `LEADS` names in the order of their weight: each is said from its least to
its most, with where. What the question asks for and nobody could measure is said with its reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sonda.report import quantities
from sonda.report.views.study.cells import interval_holds, is_ratio
from sonda.report.views.study.optimisations import summary_lines
from sonda.report.views.study.tables import (
    VARIANT,
    Document,
    bare_reason,
    figure_name,
    row_names,
    select_variant,
    variants_of,
)

LEADS: dict[str, str] = {
    "slowdown": "a step takes {} times as long beside another program as alone",
    "share_percent@embeddings": "embeddings take {} of the cycles",
    "speedup": "the others are {} times as fast as {base}",
    "relative_edp": "their energy-delay product is {} times that of {base}",
    "backend_bound_percent": "the back end limits {} of the slots",
    "latency_ms@90": "90 of 100 answers come within {}",
    "rate_under_bound_per_second": "under a bound of latency it answers {}",
    "energy_per_query_J": "an answer takes {}",
    "efficiency_percent": "it reaches {} of the peak",
    "roof_percent": "it reaches {} of the roof",
    "accuracy_percent": "{} of the test are right",
    "modelled_l1_mpki": "1000 instructions miss the first cache {} times, modelled",
    "training_epoch_s": "an epoch takes {}",
    "step_ms": "a step takes {}",
    "peak_memory_MB": "tensors take {} at most",
}
"""Figures that answer questions, the weightiest first, and how their values are said."""
PRICES = ("training_epoch_s", "step_ms", "peak_memory_MB")
"""Said beside accuracy, and where there is nothing weightier."""
RELATIVE = ("speedup", "training_speedup", "scaling", "training_scaling", "relative_")
"""How figures begin that are of one configuration against another."""
MOST_LEADS = 3
NEAR = 0.1
"""Ours within 10 % of a published figure."""


@dataclass(frozen=True)
class Answer:
    """A study's answer."""

    sentences: tuple[str, ...]
    """The first is the answer; what the others add are variants, published figures, what is missing."""
    figures: tuple[str, ...]
    """Keys of the figures that it is made of, which a page draws."""
    places: tuple[str, ...] = ()
    """Those of the sentences that are of one place each, where another is of all of them; a page has them there."""


def answer(study: Document) -> Answer:
    """The answer of a study, or that it has none yet."""
    if not any(map(is_measured, study["rows"])):
        return Answer((f"No answer yet: none of {len(study['rows']):,} configurations is measured.",), ())
    leads = _leads(study)
    # Where speed-ups are figures of the study, what options bring is said by them.
    options = [] if "speedup" in dict(leads) else list(_option_sentences(study.get("optimisations", ())))
    sentence = "; ".join(words for _, words in leads) + _speaking_variant(study, [key for key, _ in leads])
    places = tuple(options) if len(options) > 1 and study.get("whole") else ()
    if study.get("fitted") and sentence:
        sentence = f"with {study['fitted']}: {sentence}"
    first = [str(study["whole"]), *places] if places else options or [f"{sentence[:1].upper()}{sentence[1:]}."]
    more = (_variants_sentence(study), published_words(study), _lacking_sentence(study))
    return Answer((*first, *(sentence for sentence in more if sentence)), tuple(key for key, _ in leads), places)


def _option_sentences(places: Sequence[Document]) -> Iterator[str]:
    """The sentence of every place; where no option has an effect that is sure, the numbers that there are."""
    for place, sentence in zip([place for place in places if place["sentence"]], summary_lines(places), strict=True):
        known = [(str(option["name"]), option["speedup"]) for option in place["options"] if _was_measured(option)]
        sure = any(option["effect"] in ("faster", "slower", "nothing") for option in place["options"])
        known.sort(key=lambda pair: float(pair[1]["value"]))
        shown = " to ".join(
            f"{quantities.times(speedup['value'])} ({name})" for name, speedup in (known[:1] + known[1:][-1:])
        )
        if not known:
            where = f"{place['place']}: " if place["place"] else ""
            yield f"{where}Nothing can be held against {place['base']} yet."
            continue
        yield sentence if sure else f"{sentence} Measured: {shown}{_doubt([speedup for _, speedup in known])}."


def _was_measured(option: Document) -> bool:
    """Whether an option has a speed-up that was measured: one that stands at its bound is as large as that allows."""
    value, most = option["speedup"]["value"], option.get("most")
    return value is not None and (most is None or value < most)


def is_measured(row: Document) -> bool:
    """Whether a row has any figure of ours."""
    return any(figure["value"] is not None for figure in row["figures"].values())


def published_words(study: Document) -> str:
    """How ours compare with what was published, in one sentence; '' where nothing was.

    Only of single values there is a ratio. Ranges and bounds that ours lie in are counted apart: that is no agreement.
    """
    printed = []
    for row in study["rows"]:
        base = bool(study.get("base")) and row["configuration"].get(VARIANT) == study["base"]
        for key, figure in row["figures"].items():
            if not (base and key.startswith(RELATIVE)):  # the base against itself is 1 for everybody
                printed += figure.get("published", ())
    if not printed:
        return ""
    values = [published for published in printed if published["value"]["value"] is not None]
    ratios = [published["ratio"] for published in values if published["ratio"] is not None]
    ranges = [published["in_range"] for published in printed if published["in_range"]]
    if not ratios and not ranges:
        return f"None of {len(printed):,} published figures has ours beside it."
    clauses = []
    if ratios:
        near = sum(1 / (1 + NEAR) <= ratio <= 1 + NEAR for ratio in ratios)
        clauses.append(
            f"ours stand beside {len(ratios):,} of {len(values):,} published values: {_range_text(ratios)} times as "
            f"large, {near or 'none'} within {quantities.percent(NEAR)} %"
        )
    if ranges:
        inside = ranges.count("inside")
        clauses.append(f"ours lie in {inside or 'none'} of {len(ranges):,} published ranges")
    sentence = "; ".join(clauses)
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _leads(study: Document) -> list[tuple[str, str]]:
    """Figures that were measured, with what is said of them: those of `LEADS`, or else the first that there is."""
    columns = {str(column["figure"]): column for column in study["columns"]}
    leads = {key: words for key in LEADS if key in columns and (words := _lead(study, columns[key]))}
    weighty = [key for key in leads if key not in PRICES]
    if "accuracy_percent" in leads and not any(map(is_ratio, leads)):
        leads = {key: words for key, words in leads.items() if key in ("accuracy_percent", *PRICES)}
    elif weighty:
        leads = {key: leads[key] for key in weighty}
    if not leads:
        leads = {key: words for key, column in columns.items() if (words := _lead(study, column))}
        leads = dict(list(leads.items())[:1])
    return list(leads.items())[:MOST_LEADS]


def _lead(study: Document, column: Document) -> str:
    """The least and the most of a figure, with where; '' where no row has it."""
    key = str(column["figure"])
    shown, variant = _speaking_rows(study, key)
    cells = sorted(_values(shown, key), key=lambda pair: float(pair[1]["value"]))
    if not cells:
        return ""
    if len(cells) == 1 and variant:
        cells = [(variant, cells[0][1])]
    ends = [cells[0], cells[-1]]
    if ends[0][1]["value"] == ends[1][1]["value"]:
        ends = [cells[0] if len(cells) == 1 else (f"all {len(cells)}", cells[0][1])]
    unit = "queries/s" if key == "rate_under_bound_per_second" else str(column["unit"])
    texts = [f"{quantities.number(figure['value'])} {unit}".rstrip() for _, figure in ends]
    sure = [_interval_text(figure) if is_ratio(key) or unit == "%" else "" for _, figure in ends]
    beside = [", ".join(filter(None, (name, interval))) for (name, _), interval in zip(ends, sure, strict=True)]
    words = " to ".join(f"{text} ({more})" if more else text for text, more in zip(texts, beside, strict=True))
    sentence = LEADS.get(key, f"{figure_name(column)}: {{}}").format(words, base=study.get("base", ""))
    return sentence + _doubt([figure for _, figure in cells] if is_ratio(key) else [])


def _interval_text(figure: Document) -> str:
    """`1.50 to 1.93`; '' where a figure has no interval."""
    low, high = figure.get("low"), figure.get("high")
    if low is None or high is None or low == high:
        return ""
    return f"{quantities.number(low)} to {quantities.number(high)}"


def _speaking_variant(study: Document, keys: Sequence[str]) -> str:
    """`(as published)`: the variant whose rows were all that spoke; '' where their names say it."""
    spoke = [_speaking_rows(study, key) for key in keys]
    several = [name for part, name in spoke if name and sum(1 for _ in _values(part, keys[0])) > 1]
    return f" ({several[0]})" if several and len(set(several)) == 1 and len(several) == len(keys) else ""


def _speaking_rows(study: Document, key: str) -> tuple[Document, str]:
    """The rows that speak for a figure: where variants are no rows like any other, those of the first that has it."""
    for name in variants_of(study) if not study.get("base") else ():
        part = select_variant(study, name)
        if any(_has(row, key) for row in part["rows"]):
            return part, name
    return study, ""


def _values(study: Document, key: str) -> Iterator[tuple[str, Document]]:
    """Names and figures of the rows that have it; a ratio to the base is none of the base itself."""
    base = study.get("base")
    for name, row in zip(row_names(study), study["rows"], strict=True):
        itself = base and is_ratio(key) and row["configuration"].get(VARIANT) == base
        if _has(row, key) and not itself:
            yield "" if len(study["rows"]) == 1 else name, row["figures"][key]


def _has(row: Document, key: str) -> bool:
    return row["figures"][key]["value"] is not None


def _doubt(ratios: Sequence[Document]) -> str:
    """How many of these may as well be 1: their interval holds it, or they have none."""
    lone = [figure for figure in ratios if figure["low"] is None or figure["high"] is None]
    unsure = [figure for figure in ratios if interval_holds(figure, 1.0)]
    doubts = [f"{len(of)} of {len(ratios)} {words}" for of, words in
            ((unsure, "not significant"), (lone, "measured once only")) if of]  # fmt: skip
    return f" [{', '.join(doubts)}]" if doubts else ""


def _variants_sentence(study: Document) -> str:
    """How the other variants compare with the first, by the first figure that they are compared by."""
    wanted = next(
        (key for key in study.get("compare", ()) for compared in study["compared"] if compared["figure"] == key), ""
    )
    if study.get("base") or not wanted:
        return ""
    ratios = {compared["variant"]: compared["ratio"] for compared in study["compared"] if compared["figure"] == wanted}
    ends = dict.fromkeys([min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)])
    shown = " to ".join(f"{quantities.number(ratios[name])} ({name})" for name in ends)
    name = figure_name(next(column for column in study["columns"] if column["figure"] == wanted))
    return f"Against {variants_of(study)[0]}, {name} of other variants: {shown} times, geometric mean."


def _lacking_sentence(study: Document) -> str:
    """The weightiest figure that the study asks for and no row has, with its reason."""
    columns = {str(column["figure"]): column for column in study["columns"]}
    key = next((figure for figure in LEADS if figure in columns and figure not in PRICES), "")
    figures = [row["figures"][key] for row in study["rows"]] if key else []
    if not figures or any(figure["value"] is not None for figure in figures):
        return ""
    asked = f"The question asks for {figure_name(columns[key])} too"
    return f"{asked}, which could not be measured: {bare_reason(figures[0])}."


def _range_text(values: Sequence[float]) -> str:
    least, most = quantities.number(min(values)), quantities.number(max(values))
    return least if least == most else f"{least} to {most}"
