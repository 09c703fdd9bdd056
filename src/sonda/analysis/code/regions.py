"""Adds up samples to regions: lines, functions and the tree of the user's code, most time first."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from sonda.analysis import reasons
from sonda.analysis.code.activities import Callee
from sonda.analysis.code.placement import DOING, Moments, UserFrames, find_user_frames
from sonda.analysis.code.purposes import PlacedSample, UserFrame, find_purposes
from sonda.analysis.code.summary import (
    OTHER,
    Activity,
    CodeBranch,
    CodeFunction,
    CodeLead,
    CodeLine,
    CodePlace,
    CodeRegion,
    CodeTime,
    Doing,
)
from sonda.analysis.rules.work import WORTH
from sonda.analysis.statistics import proportion
from sonda.analysis.summary import SAMPLES, Value
from sonda.record.spans import Words
from sonda.record.stacks import Frames

SMALLEST = 0.005
"""Places that take less of a region are left out of its tree."""
COMPREHENSION = re.compile(r"(\.<locals>)?\.<(listcomp|genexpr|dictcomp|setcomp)>$")
"""End of the name of what is a part of the function around it."""
HALF = 0.5
"""A line, or a call, that takes half of a function stands for it."""
DEEPEST = 40
"""Levels of a tree: a recursion has no end."""


@dataclass
class _Tally:
    """Sums of one place."""

    times: list[float] = field(default_factory=lambda: [0.0] * len(DOING))
    ran: float = 0.0
    calls: dict[str, float] = field(default_factory=dict)
    samples: int = 0
    steps: set[int] = field(default_factory=set)

    def add(self, sample: CodeSample) -> None:
        self.times[sample.doing] += sample.weight
        self.ran += sample.ran
        self.samples += sample.due
        if sample.step >= 0:
            self.steps.add(sample.step)
        if DOING[sample.doing] is Doing.WAITING:
            self.calls[sample.call] = self.calls.get(sample.call, 0.0) + sample.weight

    def time(self, over: float) -> CodeTime:
        """The sums divided by this: per step."""
        python, native, waiting = (time / over for time in self.times)
        calls = tuple((name, time / over) for name, time in _most(self.calls))
        return CodeTime(python, native, waiting, self.ran / over, calls, self.samples, len(self.steps))


class CodeSample(NamedTuple):
    """A sample with what it stands for and where it lies."""

    stack: int
    weight: float
    ran: float
    doing: int
    due: bool
    """A sample gives two moments: this is the first."""
    call: str
    step: int
    phase: str
    layer: str
    collecting: bool = False
    """Whether the thread collected garbage most of the time."""


class Whole(NamedTuple):
    """What times and shares of a region are of."""

    time: float
    """ns of which shares are taken."""
    steps: float
    """What times are divided by; 1 of what is in no step."""
    samples: float
    """Independent samples that this time is worth: for the intervals of shares."""


class CodeCauses(NamedTuple):
    """What samples are for."""

    leads: tuple[CodeLead, ...]
    """Those whose activity is known, each activity by itself; most time first."""
    rest: list[CodeSample]
    """The samples that are in none of them."""
    purposes: dict[str, Activity]
    """By line: the activity of a lead that takes most of its time."""


class CodeBook:
    """The frames of a run with their words, and the moments that were sampled; makes regions of some of them."""

    def __init__(self, frames: Frames, moments: Moments) -> None:
        self.moments = moments
        self.users: UserFrames = find_user_frames(frames)
        self._words = {name: _decode(column) for name, column in frames.words.items()}
        self._words["function"] = [COMPREHENSION.sub("", name) for name in self._words["function"]]
        self._numbers = {name: column.tolist() for name, column in frames.numbers.items()}
        self._call = _decode(moments.call)
        self._user_frames: dict[int, UserFrame] = {}

    def samples(
        self, rows: np.ndarray, steps: np.ndarray | None = None, phases: Sequence[str] = (), layers: Sequence[str] = (),
        longest: np.ndarray | None = None,
    ) -> list[CodeSample]:  # fmt: skip
        """These moments, each with the step, phase and layer that it lies in, and no longer than `longest` (ns)."""
        moments = self.moments
        kept = np.ones(len(rows))
        if longest is not None:
            kept = np.minimum(longest / np.maximum(moments.weight[rows], 1), 1)
        weight, ran = moments.weight[rows] * kept, moments.ran[rows] * kept
        return [
            CodeSample(
                int(moments.stack[row]), float(weight[at]), float(ran[at]), int(moments.doing[row]),
                bool(moments.due[row]), self._call[row], int(steps[at]) if steps is not None else -1,
                phases[at] if phases else "", layers[at] if layers else "", bool(moments.collecting[row]),
            )
            for at, row in enumerate(rows.tolist())
        ]  # fmt: skip

    def region(
        self, name: str, samples: list[CodeSample], whole: Whole, leading: list[CodeSample] | None = None
    ) -> CodeRegion:
        """The region of these samples; leads are those of `leading`, or of all."""
        total = _Tally()
        for sample in samples:
            total.add(sample)
        return CodeRegion(
            name, total.time(whole.steps), share_of(sum(total.times), whole), self.lines(samples, whole),
            self.functions(samples, whole), self._tree(samples, whole, SMALLEST * sum(total.times)),
            self.leads(samples if leading is None else leading, whole),
        )  # fmt: skip

    def lines(self, samples: list[CodeSample], whole: Whole) -> tuple[CodeLine, ...]:
        """Expressions of the user's code, each without the user's functions that it calls."""
        tallies: dict[tuple[CodePlace, str, str], _Tally] = defaultdict(_Tally)
        for sample in samples:
            frame = self._innermost(sample)
            if frame >= 0:
                key = self._place(frame), self._words["text"][frame], self._called(sample.stack, frame)
                tallies[key].add(sample)
        lines = [
            CodeLine(place, text, called, tally.time(whole.steps), share_of(sum(tally.times), whole))
            for (place, text, called), tally in tallies.items()
        ]
        return tuple(sorted(lines, key=lambda line: -line.time.total))

    def functions(self, samples: list[CodeSample], whole: Whole) -> tuple[CodeFunction, ...]:
        own: dict[CodePlace, _Tally] = defaultdict(_Tally)
        inclusive: dict[CodePlace, _Tally] = defaultdict(_Tally)
        called, phases, layers = (
            defaultdict[CodePlace, dict[str, float]](lambda: defaultdict(float)) for _ in range(3)
        )
        for sample in samples:
            frame = self._innermost(sample)
            if frame < 0:
                continue
            place = self._begin(frame)
            own[place].add(sample)
            if call := self._called(sample.stack, frame):
                called[place][call] += sample.weight / whole.steps
            for place in self._functions_around(frame):
                inclusive[place].add(sample)
                phases[place][sample.phase or OTHER] += sample.weight / whole.steps
                if sample.layer:
                    layers[place][sample.layer] += sample.weight / whole.steps
        functions = [
            CodeFunction(
                place, own[place].time(whole.steps), tally.time(whole.steps), share_of(sum(tally.times), whole),
                tuple(_most(called[place])), dict(_most(phases[place])), tuple(_most(layers[place])),
            )
            for place, tally in inclusive.items()
        ]  # fmt: skip
        return tuple(sorted(functions, key=lambda function: -function.inclusive.total))

    def _tree(self, samples: Iterable[CodeSample], whole: Whole, least: float) -> tuple[CodeBranch, ...]:
        root = _Branch()
        for sample in samples:
            branch = root
            for frame in self._user_stack(self._innermost(sample))[:DEEPEST]:
                branch = branch.below[self._place(frame), self._words["text"][frame]]
                branch.tally.add(sample)
        return root.branches(whole, least)

    def leads(
        self, samples: list[CodeSample], whole: Whole, activity: Activity = Activity.UNKNOWN
    ) -> tuple[CodeLead, ...]:
        """Give every sample to the innermost function that takes a worthwhile share, and keep those that still do for
        sure. Where an activity does for sure and none of its functions, keep them all."""
        functions = self.functions(samples, whole)
        worthy = {function.place for function in functions if (function.share.value or 0.0) >= WORTH}
        leads: dict[CodePlace, _Lead] = defaultdict(_Lead)
        for sample in samples:
            innermost = frame = self._innermost(sample)
            while frame >= 0 and self._begin(frame) not in worthy:
                frame = int(self.users.outer[frame])
            if frame >= 0:
                lead = leads[self._begin(frame)]
                lead.tally.add(sample)
                lead.lines[self._place(frame), self._words["text"][frame]] += sample.weight
                lead.called[self._called(sample.stack, innermost)] += sample.weight
                lead.phases[sample.phase or OTHER] += sample.weight / whole.steps
        every = [lead.finish(place, whole, activity) for place, lead in leads.items()]
        kept = [lead for lead in every if (lead.share.low or 0.0) >= WORTH]
        if not kept and activity is not Activity.UNKNOWN:
            together = share_of(sum(sum(lead.tally.times) for lead in leads.values()), whole)
            kept = every if (together.low or 0.0) >= WORTH else []
        return tuple(sorted(kept, key=lambda lead: -lead.time.total))

    def causes(self, samples: list[CodeSample], whole: Whole) -> CodeCauses:
        """What samples are for."""
        purposes = find_purposes([self._place_sample(sample) for sample in samples])
        by_activity: dict[Activity, list[CodeSample]] = defaultdict(list)
        by_line: dict[str, dict[Activity, float]] = defaultdict(lambda: defaultdict(float))
        for sample, purpose in zip(samples, purposes, strict=True):
            by_activity[purpose].append(sample)
            if (frame := self._innermost(sample)) >= 0:
                place = self._place(frame)
                by_line[f"{place.file}:{place.line}"][purpose] += sample.weight
        rest = by_activity.pop(Activity.UNKNOWN, [])
        causes: list[CodeLead] = []
        for activity, inside in by_activity.items():
            leads = self.leads(inside, whole, activity)
            causes += leads
            if not leads:
                rest += inside
        kinds = {lead.activity for lead in causes}
        lines = {line: max(times, key=times.__getitem__) for line, times in by_line.items()}
        return CodeCauses(
            tuple(sorted(causes, key=lambda lead: -lead.time.total)), rest,
            {line: activity for line, activity in lines.items() if activity in kinds},
        )  # fmt: skip

    def imports(self, sample: CodeSample) -> bool:
        """Whether the sample lies in an import."""
        frames = self._frames_below(sample.stack, self._innermost(sample))
        return any(module.startswith("importlib") for module, _ in frames)

    def _place_sample(self, sample: CodeSample) -> PlacedSample:
        frame = self._innermost(sample)
        text = self._words["text"][frame] if frame >= 0 else ""
        return PlacedSample(
            [self._user_frame(at) for at in self._user_stack(frame)],
            Callee(text, find_callee(text), self._frames_below(sample.stack, frame)),
            sample.doing, sample.call, sample.phase, sample.weight, sample.collecting,
        )  # fmt: skip

    def _user_frame(self, frame: int) -> UserFrame:
        if frame not in self._user_frames:
            begin, words, numbers = self._begin(frame), self._words, self._numbers
            statement = numbers["statement"][frame]
            self._user_frames[frame] = UserFrame(
                (begin.file, begin.function, begin.line), statement or numbers["line"][frame],
                _split(words["loops"][frame]), _split(words["feeds"][frame]), bool(statement),
            )  # fmt: skip
        return self._user_frames[frame]

    def _frames_below(self, stack: int, frame: int) -> list[tuple[str, str]]:
        """Module and function of the frames that the user's frame called on the way to a stack."""
        below = []
        while stack >= 0 and stack != frame:
            below.append((self._words["module"][stack], self._words["function"][stack]))
            stack = self._numbers["parent"][stack]
        return below[::-1]

    def _innermost(self, sample: CodeSample) -> int:
        return int(self.users.innermost[sample.stack]) if sample.stack >= 0 else -1

    def _user_stack(self, frame: int) -> list[int]:
        """The user's frames, the outermost first."""
        stack = []
        while frame >= 0:
            stack.append(frame)
            frame = int(self.users.outer[frame])
        return stack[::-1]

    def _functions_around(self, frame: int) -> set[CodePlace]:
        return {self._begin(frame) for frame in self._user_stack(frame)}

    def _place(self, frame: int) -> CodePlace:
        return CodePlace(self._words["file"][frame], self._words["function"][frame], self._numbers["line"][frame])

    def _begin(self, frame: int) -> CodePlace:
        words, numbers = self._words, self._numbers
        around = int(self.users.outer[frame])
        if (
            around >= 0
            and numbers["first_line"][around] < numbers["first_line"][frame]
            and all(words[name][around] == words[name][frame] for name in ("file", "function"))
        ):
            return self._begin(around)  # a comprehension begins where its function does
        return CodePlace(words["file"][frame], words["function"][frame], numbers["first_line"][frame])

    def _called(self, stack: int, frame: int) -> str:
        """What the user's frame calls of a library on the way to a stack."""
        below = int(self.users.below[stack])
        if below < 0:
            return find_callee(self._words["text"][frame])
        module, function = self._words["module"][below], self._words["function"][below]
        return f"{module}.{function}" if module else function


@dataclass
class _Lead:
    """A function to which samples are given."""

    tally: _Tally = field(default_factory=_Tally)
    lines: dict[tuple[CodePlace, str], float] = field(default_factory=lambda: defaultdict(float))
    called: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    phases: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def finish(self, place: CodePlace, whole: Whole, activity: Activity) -> CodeLead:
        total = sum(self.tally.times)
        by_line: dict[int, float] = defaultdict(float)
        for (line, _), time in self.lines.items():
            by_line[line.line] += time
        longest = max(by_line, key=lambda line: by_line[line])
        text = ""
        if longest > 0 and by_line[longest] >= HALF * total:
            (place, text), _ = max(
                (item for item in self.lines.items() if item[0][0].line == longest), key=lambda item: item[1]
            )
        called, spent = max(self.called.items(), key=lambda item: item[1])
        return CodeLead(
            place, text, called if spent >= HALF * total else "", self.tally.time(whole.steps), share_of(total, whole),
            activity, tuple(_most(self.phases)),
        )  # fmt: skip


@dataclass
class _Branch:
    """A branch of a tree that is being added up."""

    tally: _Tally = field(default_factory=_Tally)
    below: dict[tuple[CodePlace, str], _Branch] = field(default_factory=lambda: defaultdict(_Branch))

    def branches(self, whole: Whole, least: float) -> tuple[CodeBranch, ...]:
        kept = [
            CodeBranch(place, text, branch.tally.time(whole.steps), share_of(sum(branch.tally.times), whole),
                       branch.branches(whole, least))
            for (place, text), branch in self.below.items() if sum(branch.tally.times) >= least
        ]  # fmt: skip
        return tuple(sorted(kept, key=lambda branch: -branch.time.total))


@cache
def find_callee(text: str) -> str:
    """`time.sleep` of `time.sleep(0.1)`; '' of what is no call of a name."""
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return ""
    return ast.unparse(node.func)


def share_of(time: float, whole: Whole) -> Value:
    """A share with the interval that its samples leave open."""
    if not whole.time:
        return Value(None, "1", "measured", reason=reasons.NO_TIME_SAMPLED)
    share = min(time / whole.time, 1.0)
    low, high = proportion(round(share * whole.samples), max(round(whole.samples), 1))
    return Value(share, "1", "measured", min(low, share), max(high, share), bounds=SAMPLES)


def _split(lines: str) -> frozenset[str]:
    return frozenset(lines.split(",")) if lines else frozenset()


def _decode(column: Words) -> list[str]:
    return [str(word) for word in column.decoded()]


def _most(sums: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(sums.items(), key=lambda item: -item[1])
