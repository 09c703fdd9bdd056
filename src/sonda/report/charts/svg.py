"""A figure as SVG: drawn when it is written, so that it needs no script, and nothing from elsewhere.

Colours of ink and grid are greys that are seen on white and on black alike; a page's style sheet has its own for the
classes `ink`, `soft` and `grid`. What a reader is told of a mark is its `<title>`, or stands once in a list of
hints, of which the mark has the number: a page has every figure twice, wide and narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sonda.report.charts import axes
from sonda.report.charts.chart import Area, Boxes, Chart, ColorScale, Dots, Guide, Mark, Place, Plot, Points, Shade
from sonda.report.charts.hints import Hints
from sonda.report.charts.symbols import GREY, look_of, px, shape_svg
from sonda.report.labels import markup
from sonda.report.palette import DARK_INK, ink_on, luminance

WIDE, NARROW = 940, 360
"""px of width, of a page on a screen and on a phone."""
LETTER, LINE = 7.0, 19
"""Width of a letter and height of a line, px."""
REACHES = {
    **dict.fromkeys("mwMW@%…", 12.0),
    **dict.fromkeys("<>=+~#&", 10.1),
    **dict.fromkeys("ijl.,:;'|! ()[]-ftr/", 5.0),
}
CAPITAL, SMALL = 9.5, 7.7
"""px of letters at most: those of DejaVu Sans, which is as wide as a system's font may be."""
NAMES = 34
"""Letters of a name that there is room for beside a picture."""
MOST_SHIFTS = 5
"""Lines by which a label may be moved to be read."""
UPRIGHT = 16
"""Letters of a name that stands upright."""
FAINTEST = 0.6
"""Luminance from which on a colour hardly stands out from white, so that it gets a border."""
DASHES = {"dash": "6 4", "dot": "2 3", "dashdot": "7 3 2 3"}


def standalone(chart: Chart) -> str:
    """The figure as one `<svg>` element for a notebook, with titles."""
    return draw(chart, WIDE, Hints(titles=True), "sonda", standalone=True)


def draw(chart: Chart, width: int, hints: Hints, name: str, look: str = "", standalone: bool = False) -> str:
    """The figure as one `<svg>` element of this width; `name` is unique on the page, `look` is its class."""
    sheet = _Sheet(chart, width, hints, f"{name}-hatch")
    body = "".join(sheet.pieces())
    style = ' style="max-width:100%;height:auto;font:12px system-ui,sans-serif"' if standalone else ""
    kind = f' class="{look}"' if look else ""
    about = markup(", ".join(text for text in (chart.fields[0].y.title, chart.x.title) if text) or "figure")
    hatch = sheet.hatch if f"#{sheet.hatching}" in body else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg"{kind} viewBox="0 0 {width} {px(sheet.height)}" width="{width}" '
        f'height="{px(sheet.height)}"{style} role="group" aria-label="{about}">{hatch}{body}</svg>'
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _wide(text: str) -> float:
    return LETTER * len(text)


def _reach(text: str) -> float:
    """px that a text takes at most: at an edge it must not be cut."""
    return sum(REACHES.get(letter, CAPITAL if letter.isupper() or ord(letter) > 0x2FF else SMALL) for letter in text)


def _fit(text: str, room: float) -> str:
    """As much of a text as there is certainly room for."""
    most = len(text)
    while most > 1 and _reach(_cut(text, most)) > room:
        most -= 1
    return _cut(text, most)


@dataclass(frozen=True)
class Key:
    """An entry of the legend."""

    name: str
    color: str
    symbol: str = ""
    line: str = ""
    hatched: bool = False


class _Sheet:
    """A figure with the place of everything in it."""

    def __init__(self, chart: Chart, width: int, hints: Hints, hatching: str) -> None:
        self.chart, self.width, self.hints, self.hatching = chart, width, hints, hatching
        self.narrow = width < 500
        self.keys = list(_keys(chart.marks)) if chart.legend is not False else []
        if chart.legend is None and len(self.keys) < 2:
            self.keys = []
        self.series = {key.name: at for at, key in enumerate(self.keys)}
        self.lines = list(self._legend_lines())
        self.ends_x = axes.ends_of(chart.x, [value for field in chart.fields for value in axes.across_of(field.marks)])
        self.left, self.right = self._sides()
        self.columns = chart.x.names
        room = (width - self.left - self.right) / max(1, len(self.columns))
        self.turned = bool(self.columns) and max(map(_wide, self.columns)) > room - 4
        most = UPRIGHT if self.turned else max(1, int(room / LETTER))
        self.column_names = [_cut(name, most) for name in self.columns]
        self.top = 4.0 + LINE * len(self.lines) + (34 if chart.scale else 0)
        if self.columns:
            self.top += max(map(_wide, self.column_names)) + 8 if self.turned else LINE
        self.written: list[tuple[float, float, float]] = []
        """Left end, right end and height of the labels so far."""
        self._place_fields()

    def _sides(self) -> tuple[float, float]:
        """Room on the left and on the right, px."""
        named = [field.y.names for field in self.chart.fields if field.y.names]
        if named:
            longest = max(len(name) for names in named for name in names)
            # On a phone long names stand above their rows.
            self.above = self.narrow and longest > 12
            left = 6.0 if self.above else 10 + max(_reach(_cut(name, NAMES)) for names in named for name in names)
        else:
            self.above = False
            texts = [text for field in self.chart.fields for _, text in self._upright_ticks(field)]
            left = 12 + max(map(_wide, texts), default=20.0)
        return left, 16.0

    def _upright_ticks(self, field: Plot) -> Sequence[tuple[float, str]]:
        return axes.ticks_of(field.y, axes.ends_of(field.y, axes.upright_of(field.marks)), 5)

    def _place_fields(self) -> None:
        """Top and bottom of each field; the height of all."""
        shares = sum(field.share for field in self.chart.fields)
        self.fields: list[tuple[Plot, float, float]] = []
        self.ends_y = {id(field): axes.ends_of(field.y, axes.upright_of(field.marks)) for field in self.chart.fields}
        y = self.top
        for field in self.chart.fields:
            y += (LINE + 3 if field.title or field.y.title else 4) + (8 if self.fields else 0)
            tall = self.chart.height * field.share / shares
            if self.above and field.y.names:
                tall += 15 * len(field.y.names)
            self.fields.append((field, y, y + tall))
            y += tall
        self.bottom = y
        self.height = self.bottom + (6 if self.columns else 20) + (LINE if self.chart.x.title else 0) + 2

    # ---- from values to px ----

    def x(self, value: float) -> float:
        return axes.part(value, self.ends_x, self.chart.x.log) * (self.width - self.left - self.right) + self.left

    def y(self, value: float, field: Plot, top: float, bottom: float) -> float:
        if field.y.names:
            row = (bottom - top) / len(field.y.names)
            above = 15.0 if self.above else 0.0
            place = math.floor(value + 0.5)
            inside = value + 0.5 - place
            if place >= len(field.y.names):
                return bottom
            # The end of a row is that of the bar in it, and no part of the name below.
            return top + place * row + above + inside * (row - above)
        return bottom - axes.part(value, self.ends_y[id(field)], field.y.log) * (bottom - top)

    # ---- what is drawn, from behind to the front ----

    def pieces(self) -> Iterator[str]:
        yield from self._legend()
        yield from self._color_scale()
        yield from self._across()
        for field, top, bottom in self.fields:
            yield from self._field(field, top, bottom)
        yield from self._strips()

    @property
    def hatch(self) -> str:
        return (
            f'<pattern id="{self.hatching}" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><path d="M0 0V6" stroke="#fff" stroke-opacity=".75" stroke-width="3"/>'
            "</pattern>"
        )

    def _across(self) -> Iterator[str]:
        """The axis below: its lines, its texts and its title."""
        top, bottom = self.fields[0][1], self.bottom
        if self.columns:
            for at, name in enumerate(self.column_names):
                x = self.x(at)
                if self.turned:
                    turn = f' transform="rotate(-90 {px(x + 4)} {px(top - 6)})"'
                    yield self._text(x + 4, top - 6, name, "start", turn)
                else:
                    yield self._text(x, top - 6, name, "middle")
        else:
            ticks = axes.ticks_of(self.chart.x, self.ends_x, 5 if self.narrow else 10)
            lines = "".join(f"M{px(self.x(value))} {px(top)}V{px(bottom)}" for value, _ in ticks)
            yield f'<path class="grid" d="{lines}" stroke="{GREY}" stroke-opacity=".2"/>'
            reached = -math.inf
            for value, text in ticks:
                half = _wide(text) / 2
                x = min(max(self.x(value), half), self.width - half)
                if x - half > reached + 5:
                    yield self._text(x, bottom + 15, text, "middle")
                    reached = x + half
        if self.chart.x.title:
            title = _cut(self.chart.x.title, int((self.width - 8) / LETTER))
            middle = (self.left + self.width - self.right) / 2
            x = min(max(middle, _wide(title) / 2 + 4), self.width - _wide(title) / 2 - 4)
            yield self._text(x, self.height - 6, title, "middle", "", "soft")

    def _field(self, field: Plot, top: float, bottom: float) -> Iterator[str]:
        title = field.title or field.y.title
        if title:
            yield self._text(4, top - 9, _cut(title, int(self.width / LETTER)), "start", "", "soft")
        if field.y.names:
            for at, name in enumerate(field.y.names):
                if self.above:
                    y = top + at * (bottom - top) / len(field.y.names) + 12
                    yield self._text(4, y, _fit(name, self.width - 6), "start")
                else:
                    yield self._text(self.left - 6, self.y(at, field, top, bottom) + 4, _cut(name, NAMES), "end")
        else:
            ticks = self._upright_ticks(field)
            places = [(self.y(value, field, top, bottom), text) for value, text in ticks]
            lines = "".join(f"M{px(self.left)} {px(y)}H{px(self.width - self.right)}" for y, _ in places)
            yield f'<path class="grid" d="{lines}" stroke="{GREY}" stroke-opacity=".2"/>'
            yield from (self._text(self.left - 5, y + 4, text, "end") for y, text in places)
        for mark in field.marks:
            name = getattr(mark, "name", "")
            group = f' data-s="{self.series[name]}"' if name in self.series else ""
            drawn = "".join(self._mark(mark, field, top, bottom))
            yield f"<g{group}>{drawn}</g>" if group else drawn

    def _mark(self, mark: Mark, field: Plot, top: float, bottom: float) -> Iterable[str]:
        def y(value: float) -> float:
            return self.y(value, field, top, bottom)

        match mark:
            case Boxes():
                return self._boxes(mark, field, top, bottom)
            case Points():
                return self._series(mark, field, top, bottom)
            case Area(_, color, across, low, high, opacity):
                there = [f"{px(self.x(x))} {px(y(value))}" for x, value in zip(across, high, strict=True)]
                back = [f"{px(self.x(x))} {px(y(value))}" for x, value in zip(across, low, strict=True)][::-1]
                clear = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
                return [f'<path d="M{"L".join([*there, *back])}Z" fill="{color}"{clear}/>'] if there else []
            case Dots(_, color, points, size):
                path = "".join(f"M{px(self.x(x))} {px(y(value))}h0" for x, value in points)
                return [f'<path d="{path}" stroke="{color}" stroke-opacity=".6" stroke-width="{px(size)}" '
                        'stroke-linecap="round"/>']  # fmt: skip
            case Guide(at, text, color, line, side):
                x = self.x(at)
                ink = f'stroke="{color}"' if color else f'class="line" stroke="{GREY}"'
                away, anchor = {"left": (-4, "end"), "right": (4, "start"), "middle": (0, "middle")}[side]
                reach = _reach(text)
                before = {"left": reach, "right": 0.0, "middle": reach / 2}[side]
                inside = min(max(x + away, before + 2), self.width - 2 - reach + before)
                word = [self._text(inside, top - 4, text, anchor)] if text else []
                dash = f' stroke-dasharray="{DASHES[line]}"' if line in DASHES else ""
                return [f'<path d="M{px(x)} {px(top)}V{px(bottom)}" {ink} stroke-width="1.4"{dash}/>', *word]
            case Shade(first, last, text):
                x, end = self.x(first), self.x(last)
                word = [self._text(x + 3, top + 11, text, "start", "", "soft")] if text else []
                return [f'<rect x="{px(x)}" y="{px(top)}" width="{px(end - x)}" height="{px(bottom - top)}" '
                        f'fill="{GREY}" fill-opacity=".22"/>', *word]  # fmt: skip

    def _boxes(self, boxes: Boxes, field: Plot, top: float, bottom: float) -> Iterator[str]:
        def placed(at: int) -> tuple[float, float, float, float]:
            left, right, low, high = boxes.places[at]
            x, y = self.x(left), min(ends := (self.y(low, field, top, bottom), self._end(high, field, top, bottom)))
            return x, y, self.x(right) - x, max(ends) - y

        border = ' class="faint"' if _faint(boxes.color) else ""
        if not boxes.hints and not boxes.colors and not any(boxes.hatched):
            pieces = [placed(at) for at in range(len(boxes.places))]
            path = "".join(f"M{px(x)} {px(y)}h{px(wide)}v{px(high)}h{px(-wide)}z" for x, y, wide, high in pieces)
            yield f'<path d="{path}" fill="{boxes.color}"{border}/>'
            return
        gap = 1.0 if boxes.colors else 0.0
        for at in range(len(boxes.places)):
            x, y, wide, high = placed(at)
            color = boxes.colors[at] if boxes.colors else boxes.color
            hint = boxes.hints[at] if boxes.hints else ""
            size = f'x="{px(x)}" y="{px(y)}" width="{px(max(wide - gap, 0.3))}" height="{px(max(high - gap, 0.3))}"'
            yield f'<rect {size} fill="{color}"{border}{self.hints.attribute(hint)}>{self.hints.inside(hint)}</rect>'
            if at < len(boxes.hatched) and boxes.hatched[at]:
                yield f'<rect {size} fill="url(#{self.hatching})" pointer-events="none"/>'
            if boxes.texts:
                text = boxes.texts[at]
                if _wide(text) > wide:
                    text = text.partition(" ")[0]
                if _wide(text) <= wide + 2:
                    ink = f' fill="{ink_on(color)}" pointer-events="none"'
                    yield (f'<text x="{px(x + wide / 2)}" y="{px(y + high / 2 + 4)}" text-anchor="middle"{ink}>'
                           f"{markup(text)}</text>")  # fmt: skip

    def _end(self, value: float, field: Plot, top: float, bottom: float) -> float:
        """As `y`, but the end of a place with a name is in this place and not the beginning of the next."""
        if field.y.names and value + 0.5 == math.floor(value + 0.5):
            row = (bottom - top) / len(field.y.names)
            return top + (math.floor(value + 0.5)) * row
        return self.y(value, field, top, bottom)

    def _series(self, series: Points, field: Plot, top: float, bottom: float) -> Iterator[str]:
        placed = [None if point is None else (self.x(point[0]), self.y(point[1], field, top, bottom))
                  for point in series.points]  # fmt: skip
        ink = f'stroke="{series.color}"' if series.color else f'class="line" stroke="{GREY}"'
        if series.line:
            dash = f' stroke-dasharray="{DASHES[series.line]}"' if series.line in DASHES else ""
            yield (f'<path d="{_path(placed, series.stepped)}" fill="none" {ink} stroke-width="{series.width:g}"'
                   f'{dash} stroke-linejoin="round"/>')  # fmt: skip
        ends = [
            self._interval(interval, place, series.upright, (field, top, bottom))
            for interval, place in zip(series.intervals, placed, strict=False)
            if interval is not None and place is not None
        ]
        if ends:
            yield f'<path d="{"".join(ends)}" fill="none" {ink}/>'
        if series.symbols:
            yield from self._marks(series, placed)
        else:
            for hint, place in zip(series.hints, placed, strict=False):
                if hint and place is not None and not self.hints.titles:
                    x, y = place
                    yield f'<circle cx="{px(x)}" cy="{px(y)}" r="6" fill-opacity="0"{self.hints.attribute(hint)}/>'
        yield from self._labels(series, placed)

    def _interval(self, ends: Place, place: Place, upright: bool, where: tuple[Plot, float, float]) -> str:
        """A thin line with a stop at each end."""
        x, y = place
        if upright:
            low, high = (self.y(end, *where) for end in ends)
            return f"M{px(x)} {px(low)}V{px(high)}M{px(x - 3)} {px(low)}h6M{px(x - 3)} {px(high)}h6"
        low, high = (min(max(self.x(end), self.left), self.width - self.right) for end in ends)
        return f"M{px(low)} {px(y)}H{px(high)}M{px(low)} {px(y - 3)}v6M{px(high)} {px(y - 3)}v6"

    def _marks(self, series: Points, placed: Sequence[Place | None]) -> Iterator[str]:
        """The marks of a series: what they have in common stands once."""
        by_look: dict[str, list[str]] = {}
        for at, place in enumerate(placed):
            if place is None:
                continue
            hint = series.hints[at] if at < len(series.hints) else ""
            symbol, size = series.symbols[at % len(series.symbols)], series.sizes[at % len(series.sizes)]
            color = series.colors[at] if series.colors else series.color
            look = look_of(symbol, color, series.opacity)
            half = size * (0.85 if self.narrow else 1.0) / 2
            by_look.setdefault(look, []).append(shape_svg(symbol, *place, half, self.hints, hint))
        for look, shapes in by_look.items():
            yield f"<g {look}>{''.join(shapes)}</g>"

    def _labels(self, series: Points, placed: Sequence[tuple[float, float] | None]) -> Iterator[str]:
        for at, (text, place) in enumerate(zip(series.labels, placed, strict=False)):
            if not text or place is None:
                continue
            side = series.sides[at % len(series.sides)]
            size = series.sizes[at % len(series.sizes)] / 2 if series.symbols else 0
            x, y = place
            y += 12 + size if "below" in side else -6 - size
            anchor = "start" if "right" in side else "end" if "left" in side else "middle"
            text = _cut(text, int(self.width / LETTER))
            x += 6 if anchor == "start" else -2 if anchor == "end" else 0
            reach = _wide(text)
            least = {"start": 2.0, "end": reach + 2, "middle": reach / 2 + 2}[anchor]
            x = min(max(x, least), self.width - 2 - reach + least - 2)
            y = self._clear(x - least + 2, reach, y, -13 if "above" in side else 13)
            yield self._text(x, y, text, anchor, ' class="label"', "ink")

    def _clear(self, left: float, reach: float, y: float, step: float) -> float:
        """A height near `y` at which a text runs into no other."""
        for at in range(MOST_SHIFTS):
            here = y + at * step
            if all(abs(here - low) >= 12 or left > right or left + reach < first
                   for first, right, low in self.written):  # fmt: skip
                break
        self.written.append((left, left + reach, here))
        return here

    def _strips(self) -> Iterator[str]:
        top, bottom = self.fields[0][1], self.bottom
        for strip in self.chart.strips:
            x, end = self.x(strip.left), self.x(strip.right)
            yield (f'<rect class="strip" x="{px(x)}" y="{px(top)}" width="{px(end - x)}" height="{px(bottom - top)}" '
                   f'fill-opacity="0"{self.hints.attribute(strip.hint)}>'
                   f"{self.hints.inside(strip.hint)}</rect>")  # fmt: skip

    # ---- legends ----

    def _legend_lines(self) -> Iterator[list[tuple[float, Key]]]:
        """Keys with their places, as many in a line as there is room for."""
        line: list[tuple[float, Key]] = []
        x = 4.0
        for key in self.keys:
            wide = min(34 + _wide(key.name), self.width - 8.0)
            if line and x + wide > self.width:
                yield line
                line, x = [], 4.0
            line.append((x, key))
            x += wide
        if line:
            yield line

    def _legend(self) -> Iterator[str]:
        for number, line in enumerate(self.lines):
            y = 13.0 + LINE * number
            for x, key in line:
                name = _cut(key.name, int((self.width - x - 22) / LETTER))
                switch = "" if self.hints.titles else ' tabindex="0" role="button" aria-pressed="true"'
                inner = "".join(self._swatch(key, x, y)) + self._text(x + 20, y, name, "start")
                yield f'<g class="key" data-k="{self.series[key.name]}"{switch}>{inner}</g>'

    def _swatch(self, key: Key, x: float, y: float) -> Iterator[str]:
        ink = f'stroke="{key.color}"' if key.color else f'class="line" stroke="{GREY}"'
        if key.line:
            dash = f' stroke-dasharray="{DASHES[key.line]}"' if key.line in DASHES else ""
            yield f'<path d="M{px(x)} {px(y - 4)}h16" {ink} stroke-width="2"{dash}/>'
        if key.symbol:
            yield f"<g {look_of(key.symbol, key.color)}>{shape_svg(key.symbol, x + 8, y - 4, 5, self.hints)}</g>"
        elif not key.line:
            border = ' class="faint"' if _faint(key.color) else ""
            yield f'<rect x="{px(x + 2)}" y="{px(y - 10)}" width="12" height="12" fill="{key.color}"{border}/>'
            if key.hatched:
                fill = f"url(#{self.hatching})"
                yield f'<rect x="{px(x + 2)}" y="{px(y - 10)}" width="12" height="12" fill="{fill}"/>'

    def _color_scale(self) -> Iterator[str]:
        scale = self.chart.scale
        if scale is None:
            return
        y = 4.0 + LINE * len(self.lines)
        x = 12 + _wide(scale.title)
        yield self._text(4, y + 11, scale.title, "start", "", "soft")
        wide = min(240.0, self.width - x - 20)
        pieces = 24
        for at in range(pieces):
            color = scale.color(scale.low + (at + 0.5) / pieces * (scale.high - scale.low))
            yield (f'<rect x="{px(x + at * wide / pieces)}" y="{px(y + 2)}" width="{px(wide / pieces + 0.5)}" '
                   f'height="11" fill="{color}"/>')  # fmt: skip
        yield from self._scale_texts(scale, x, y + 26, wide)

    def _scale_texts(self, scale: ColorScale, x: float, y: float, wide: float) -> Iterator[str]:
        ticks = scale.ticks or tuple(axes.linear_ticks((scale.low, scale.high), 4))
        reached = -math.inf
        for value, text in ticks:
            at = x + axes.part(value, (scale.low, scale.high), False) * wide
            if at - _wide(text) / 2 > reached + 4:
                yield self._text(at, y, text, "middle")
                reached = at + _wide(text) / 2

    def _text(self, x: float, y: float, text: str, anchor: str, extra: str = "", look: str = "ink") -> str:
        kind = "" if "class=" in extra else f' class="{look}"'
        return (f'<text x="{px(x)}" y="{px(y)}" fill="{GREY}" font-size="12" text-anchor="{anchor}"{kind}{extra}>'
                f"{markup(text)}</text>")  # fmt: skip


def _path(placed: Sequence[tuple[float, float] | None], stepped: bool) -> str:
    path, before = "", False
    for place in placed:
        if place is None:
            before = False
            continue
        x, y = px(place[0]), px(place[1])
        path += f"V{y}H{x}" if before and stepped else f"L{x} {y}" if before else f"M{x} {y}"
        before = True
    return path


def _keys(marks: Iterable[Mark]) -> Iterable[Key]:
    """Of every name one, in the order of the marks; a series says more than the area around it."""
    keys: dict[str, Key] = {}
    for mark in marks:
        match mark:
            case Points(name, color, _, line) if name not in keys or not (keys[name].symbol or keys[name].line):
                keys[name] = Key(name, color, mark.symbols[0] if mark.symbols else "", line)
            case Boxes(name, color, _, _, hatched):
                keys.setdefault(name, Key(name, color, hatched=bool(hatched) and all(hatched)))
            case Area(name, color):
                keys.setdefault(name, Key(name, color))
            case Dots(name, color):
                keys.setdefault(name, Key(name, color, "circle"))
    keys.pop("", None)
    return keys.values()


def _faint(color: str) -> bool:
    return color.startswith("#") and color != DARK_INK and luminance(color) > FAINTEST
