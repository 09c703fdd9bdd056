"""Cooling down: before a run the machine waits until it is as cool as it was at the beginning, or rests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from sonda.probes.energy.thermal import read_temperatures
from sonda.record.progress import Say

NEAR_C = 2.0
"""°C above the beginning within which a sensor is back."""
LOOK_S = 1.0
NO_SENSOR = "no temperature can be read on this machine"


class Cooling:
    """Waits between runs until every temperature is back near where it was at the beginning, at most `most_s`.

    `start` are temperatures at the beginning, where an earlier session has seen the machine cooler.
    """

    def __init__(
        self,
        most_s: float,
        rest_s: float,
        start: Mapping[str, float] | None = None,
        say: Say = lambda text: None,
        read: Callable[[], dict[str, float]] = read_temperatures,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.most_s, self.rest_s = most_s, rest_s
        self._start = dict(start or {})
        self._say, self._read, self._clock, self._sleep = say, read, clock, sleep
        self._first = True

    def wait(self) -> dict[str, Any]:
        """Wait; returns `waited_s`, temperatures at the `start`, `before` and `after` in °C, and maybe a `reason`.

        The keys are the fields of `record.run.CoolDown`. Empty where nothing was to be waited for.
        """
        if not self.most_s and not self.rest_s:
            return {}
        began = self._clock()
        before = self._read()
        first, self._first = self._first, False
        if not before:
            if not first and self.rest_s:
                self._say(f"resting {self.rest_s:g} s: {NO_SENSOR}")
                self._sleep(self.rest_s)
            return {"waited_s": self._clock() - began, "reason": NO_SENSOR}
        for sensor, value in before.items() if first else ():
            self._start[sensor] = min(value, self._start.get(sensor, value))
        now = before
        while (hot := self._describe_hottest(now)) and self._clock() - began < self.most_s:
            self._say(f"cooling down: {hot}")
            self._sleep(min(LOOK_S, max(0.0, self.most_s - (self._clock() - began))))
            now = self._read()
        record = {"waited_s": self._clock() - began, "start": dict(self._start), "before": before, "after": now}
        return {**record, "reason": f"not back after {self.most_s:g} s: {hot}"} if hot else record

    def _describe_hottest(self, now: Mapping[str, float]) -> str:
        """`cuda:0 temperature 61 °C, 47 °C at the beginning` for the sensor farthest off; '' where all are back."""
        above = {name: value - self._start[name] for name, value in now.items() if name in self._start}
        worst = max(above, key=lambda name: above[name], default="")
        if not worst or above[worst] <= NEAR_C:
            return ""
        return f"{worst} {now[worst]:g} °C, {self._start[worst]:g} °C at the beginning"
