"""Phases of a program: their begin and end, with what was counted in between.

A boundary may be passed many times in a millisecond, so every stream has functions of its own for it that look nothing
up: what they need is bound when they are made. They are made anew when another group of counters has its turn.
"""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any

from .recorder import FLUSH_EVENTS, Recorder, Stream

WORTH_COUNTING = 1_000_000
"""ns. What the operating system counts costs some µs: a phase that was shorter than this the last time goes without.
Counters that were asked for are read at every phase."""
UNKNOWN = 1 << 62
"""ns: a phase that has not been seen yet may be long."""
NONE, FORWARD, LOSS = range(3)
"""What the result of a function says: no backward can follow; it is a forward; it is one number, made of what a
forward made."""


class Phases:
    """Gives every stream its `begin(code, context)` and `end()`. Counters are those of the whole process."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.worth = WORTH_COUNTING
        """ns. Whoever knows that reading costs more here sets it before the first phase."""
        self._counting: Any = None
        self._short: set = set()
        """Codes of the phases that are too short for what the operating system counts."""
        self._last: dict = {}
        """How long the other phases took the last time, ns."""
        self._ready: dict = {}
        """By flag and code of a short phase: what stands in `phases` while it is open, and the code of its begin."""
        names = ("transfer", "forward", "prefill", "decode", "loss", "backward", "optimizer", "fused")
        self.codes = {name: recorder.define(kind="phase", name=name) for name in names}
        recorder.on_stream = self._equip

    def open(self, counting: Any) -> None:
        """Read these counters (`Counting`) from now on."""
        self._counting = counting
        counting.on_turn = self._equip_all
        self._equip_all()

    def close(self) -> None:
        self._counting = None
        self._equip_all()

    def _equip_all(self) -> None:
        for stream in list(self.recorder.streams):
            self._equip(stream)

    def _equip(self, stream: Stream) -> None:
        single = self._counting.reader.single if self._counting is not None else None
        if single is None or not single.descriptors:
            stream.begin, stream.end = self._general(stream)
        else:
            stream.begin, stream.end = self._bound(stream, single)

    def _general(self, stream: Stream) -> tuple:
        """Phases with any counters or none."""
        counting = self._counting
        short, last = self._short, self._last
        opened = stream.phases
        # Without counters that were asked for there is nothing to read in a short phase.
        asked = counting is not None and bool(counting.reader.flag)

        def begin(code: int, context: object = None) -> None:
            """Open a phase; `context` is kept with it for whoever closes it."""
            flag, before = 0, None
            if counting is not None:
                if code in short:
                    if asked:
                        flag = counting.take(stream)
                else:
                    before = counting.os.begin(last.get(code, UNKNOWN), now())
                    flag = counting.reader_with_os.take(stream)
            # The readings lie outside of the phase's time.
            time = now()
            opened.append((code, context, time, before))
            stream.push((code + flag, time))

        return begin, self._ending(stream, counting)

    def _ending(self, stream: Stream, counting: Any) -> Any:
        short, last, recorder, worth = self._short, self._last, self.recorder, self.worth
        opened, events = stream.phases, stream.events
        asked = counting is not None and bool(counting.reader.flag)

        def end() -> None:
            time = now()
            phase = opened.pop()
            code, began, before = phase[0], phase[2], phase[3]
            if counting is None or (before is None and not asked):
                stream.push((code + 1, time))
            elif before is None:
                stream.push((code + 1 + counting.take(stream), time))
            else:
                flag = counting.reader_with_os.take(stream)
                counting.os.end(stream, before, time)
                stream.push((code + 1 + flag, time))
            if time - began < worth:
                if code not in short:
                    short.add(code)
            elif began:
                short.discard(code)
                last[code] = time - began
            if not opened and (time > recorder.due or len(events) > FLUSH_EVENTS):
                recorder.flush()

        return end

    def _lost(self, single: Any) -> None:
        """The program closed a descriptor that is not its own: nobody may read that number again."""
        single.forget_descriptors()
        self._equip_all()

    def _bound(self, stream: Stream, single: Any) -> tuple:
        """The same where one `os.read` gives the counters that were asked for, and the phase is short.

        Such a phase stands in `phases` with a fifth entry, the code of its end, and without the time of its begin.
        """
        begin_other, end_other = self._general(stream)
        recorder, short = self.recorder, self._short
        flag = self._counting.reader.flag
        descriptor, size, read = single.descriptors[0], single.size, single.kernel.read
        # Called as methods: the interpreter has an instruction of its own for the append of a list.
        opened, counts, events = stream.phases, stream.counts, stream.events
        ready = self._ready.setdefault(flag, {})

        def begin(code: int, context: object = None) -> None:
            try:
                phase, first = ready[code]
                counts.append(read(descriptor, size))
            except (KeyError, OSError) as error:
                if type(error) is not KeyError:
                    self._lost(single)
                begin_other(code, context)
                return
            opened.append(phase if context is None else (code, context, 0, None, phase[4]))
            events.append(first)
            events.append(now())

        def end() -> None:
            time = now()
            phase = opened.pop()
            try:
                last = phase[4]
                counts.append(read(descriptor, size))
            except (IndexError, OSError) as error:
                if type(error) is not IndexError:
                    self._lost(single)
                end_differently(phase)
                return
            events.append(last)
            events.append(time)
            if not opened and time > recorder.due:
                # Phases change: from time to time each is looked at again.
                ready.clear()
                recorder.flush()

        def end_differently(phase: tuple) -> None:
            """A phase that did not begin here, or whose counters are lost."""
            opened.append(phase)
            end_other()
            code = phase[0]
            if code in short:
                ready[code] = (code, None, 0, None, code + 1 + flag), code + flag

        return begin, end
