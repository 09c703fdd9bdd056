"""Begins and ends phases of a program, with readings of counters at both ends.

A program may begin and end many phases in a millisecond. So every stream has its own functions `begin` and `end`, in
which everything they need is bound. They are made anew when another group of counters has its turn.
"""

from __future__ import annotations

from time import perf_counter_ns as now
from typing import Any

from .recorder import FLUSH_EVENTS, Recorder, Stream

WORTH_COUNTING = 1_000_000
"""ns. Reading what the operating system counts costs some µs, so it is left out of a phase that was shorter than this
the last time. Requested counters are read at every phase."""
UNKNOWN = 1 << 62
"""ns: a phase that has not been seen yet may be long."""
NONE, FORWARD, LOSS = range(3)
"""What the result of a function shows: no backward can follow; it is a forward; it is a loss, one number computed from
the result of a forward."""


class Phases:
    """Gives every stream its functions `begin(code, context)` and `end()`. Counters are those of the whole process."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.worth = WORTH_COUNTING
        """ns. Can be set before the first phase where reading is known to cost more."""
        self._counting: Any = None
        self._short: set = set()
        """Codes of the phases that are too short for what the operating system counts."""
        self._last: dict = {}
        """How long each of the other phases took the last time, ns."""
        self._ready: dict = {}
        """By flag and code of a short phase: its entry in `phases` while it is open, and the code of its begin."""
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
            stream.begin, stream.end = self._make_general(stream)
        else:
            stream.begin, stream.end = self._make_fast(stream, single)

    def _make_general(self, stream: Stream) -> tuple:
        """`begin` and `end` for any counters, or none."""
        counting = self._counting
        short, last = self._short, self._last
        opened = stream.phases
        # Without requested counters there is nothing to read in a short phase.
        requested = counting is not None and bool(counting.reader.flag)

        def begin(code: int, context: object = None) -> None:
            """Open a phase; its entry in `phases` holds `context`."""
            flag, before = 0, None
            if counting is not None:
                if code in short:
                    if requested:
                        flag = counting.take(stream)
                else:
                    before = counting.os.begin(last.get(code, UNKNOWN), now())
                    flag = counting.reader_with_os.take(stream)
            # The readings lie outside of the phase's time.
            time = now()
            opened.append((code, context, time, before))
            stream.push((code + flag, time))

        return begin, self._make_end(stream, counting)

    def _make_end(self, stream: Stream, counting: Any) -> Any:
        """`end` for any counters, or none."""
        short, last, recorder, worth = self._short, self._last, self.recorder, self.worth
        opened, events = stream.phases, stream.events
        requested = counting is not None and bool(counting.reader.flag)

        def end() -> None:
            time = now()
            phase = opened.pop()
            code, began, before = phase[0], phase[2], phase[3]
            if counting is None or (before is None and not requested):
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

    def _drop_counters(self, single: Any) -> None:
        """Stop reading these counters: the program closed their descriptor, and may reuse the number."""
        single.forget_descriptors()
        self._equip_all()

    def _make_fast(self, stream: Stream, single: Any) -> tuple:
        """`begin` and `end` for short phases where one `os.read` gives all requested counters.

        The entry of such a phase in `phases` has a fifth item, the code of its end, and no time of its begin. Other
        phases go through the general functions.
        """
        begin_general, end_general = self._make_general(stream)
        recorder, short = self.recorder, self._short
        flag = self._counting.reader.flag
        descriptor, size, read = single.descriptors[0], single.size, single.kernel.read
        # `append` is called as a method: the interpreter has a special instruction for that.
        opened, counts, events = stream.phases, stream.counts, stream.events
        ready = self._ready.setdefault(flag, {})

        def begin(code: int, context: object = None) -> None:
            try:
                phase, first = ready[code]
                counts.append(read(descriptor, size))
            except (KeyError, OSError) as error:
                if type(error) is not KeyError:
                    self._drop_counters(single)
                begin_general(code, context)
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
                    self._drop_counters(single)
                end_general_phase(phase)
                return
            events.append(last)
            events.append(time)
            if not opened and time > recorder.due:
                # Phases may become longer: from time to time each is timed again.
                ready.clear()
                recorder.flush()

        def end_general_phase(phase: tuple) -> None:
            """End a phase that began in the general function, or whose counters were dropped."""
            opened.append(phase)
            end_general()
            code = phase[0]
            if code in short:
                ready[code] = (code, None, 0, None, code + 1 + flag), code + flag

        return begin, end
