"""The line that says how far a study is: which run of how many, which of its epochs, how long all of it will take."""

from __future__ import annotations

import time
from collections.abc import Callable

from sonda.record.progress import Reached, Say, TimeTold, time_words
from sonda.studies.engine.runner import StudyProgress
from sonda.studies.file.study import VARIANT, Study


class ProgressLine:
    """Told by the engine where the study stands, and by the run that is being measured how far that one is."""

    def __init__(self, study: Study, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self._study, self._say, self._clock = study, say, clock
        self._state: StudyProgress | None = None
        self._began = 0.0
        self._first: tuple[float, float] | None = None
        """When the current run first said how much of it was done, and how much that was."""

    def tell(self, state: StudyProgress) -> None:
        """A point begins, or the study has ended."""
        self._state, self._began, self._first = state, self._clock(), None
        self._say(self._words(state, state.seconds_left))

    def tell_arrival(self, state: StudyProgress) -> None:
        """A point came from elsewhere, where several are measured at once."""
        self._say(self._words(state, state.seconds_left, arrived=True))

    def hear(self, text: str) -> None:
        """What the run that is being measured says of itself."""
        state = self._state
        if state is None or state.current is None:
            self._say(text)
            return
        reached = text if isinstance(text, Reached) else Reached(text)
        left = self._seconds_left(state, reached)
        line = f"{self._words(state, left)} · {reached.where}"
        stage = f"{state.current.identity} {reached.stage}" if reached.stage else ""
        self._say(Reached(line, stage, tells_time_left=left is not None))

    def _words(self, state: StudyProgress, left: float | None, arrived: bool = False) -> str:
        number = f"run {state.done + 1} of {state.total}"
        if arrived or state.current is None:
            number = f"{state.done} of {state.total} runs"
        failed = f", {state.failed} failed" if state.failed else ""
        time_left = "" if left is None else f", {time_words(left)} left"
        place = state.current.configuration if state.current else {}
        axes = {key: value for key, value in place.items() if key == VARIANT or key in self._study.axes}
        text = " · ".join(
            part
            for part in (
                f"{self._study.name}: {number}{failed}{time_left}",
                " ".join(f"{key}={value}" for key, value in axes.items()),
            )
            if part
        )
        return text if left is None else TimeTold(text)

    def _seconds_left(self, state: StudyProgress, reached: Reached) -> float | None:
        """What is left of this run, and of the runs after it: these take as long as this one where none has ended."""
        spent = self._clock() - self._began
        own = reached.seconds_left if reached.seconds_left is not None else self._extrapolate(reached.done)
        if own is None and state.seconds_left is not None and state.seconds_after is not None:
            own = max(0.0, state.seconds_left - state.seconds_after - spent)
        if own is None:
            return None
        after = state.seconds_after
        if after is None:
            after = (state.total - state.done - 1) * (spent + own)
        return own + after

    def _extrapolate(self, done: float | None) -> float | None:
        """s until this run has done all, at the pace since it first said how much was done: what came before, starting
        a process and reading data, comes once."""
        if done is None:
            return None
        now = self._clock()
        if self._first is None:
            self._first = now, done
        since, before = self._first
        return (now - since) / (done - before) * (1 - done) if done > before else None
