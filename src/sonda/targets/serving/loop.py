"""Queries served by a model and timed, one inference at a time.

Arrivals are planned beforehand. A latency counts from the planned arrival, never from the moment at which the model had
time for the query. So latencies include the time that a slow inference makes others wait (no coordinated omission).
There is one model, which answers queries in the order of their arrival. So no thread has to issue queries while the
model computes, and none disturbs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns, sleep
from typing import Protocol

import numpy as np

SPIN = 200_000
"""ns before a moment in which waiting polls the clock instead of sleeping: a sleeping process would wake up late."""


class Clock(Protocol):
    """Time in ns."""

    def now(self) -> int: ...

    def wait_until(self, moment: int) -> None:
        """Return at that moment, or at once where it has passed."""


class HostClock:
    """The machine's monotonic clock, which all its processes share."""

    def now(self) -> int:
        return perf_counter_ns()

    def wait_until(self, moment: int) -> None:
        while (left := moment - perf_counter_ns()) > 0:
            if left > SPIN:
                sleep((left - SPIN) / 1e9)


@dataclass(frozen=True)
class ServedQueries:
    """Queries in the order of their arrival; moments in ns on the clock that served them."""

    arrived: np.ndarray
    """When they were to arrive."""
    begun: np.ndarray
    """When the inference that answered them began."""
    done: np.ndarray
    batch: np.ndarray
    """Queries in that inference."""

    def __len__(self) -> int:
        return len(self.arrived)

    @property
    def latency(self) -> np.ndarray:
        return self.done - self.arrived


class FailedQueryError(Exception):
    """The model failed; the text says where, as in `query 100`, and the cause is the model's own exception."""


class QueryJournal:
    """Runs inferences and records when each began and ended and how many queries it answered."""

    def __init__(self, infer: Callable[[int], None], clock: Clock) -> None:
        self.infer = infer
        self.clock = clock
        self.inferences: list[tuple[int, int, int]] = []
        self.answered = 0

    def answer(self, queries: int) -> int:
        """One inference with so many queries; returns when it was done. Raises FailedQueryError when it fails."""
        begun = self.clock.now()
        try:
            self.infer(queries)
        except Exception as error:
            raise FailedQueryError(f"query {self.answered + 1}") from error
        done = self.clock.now()
        self.inferences.append((begun, done, queries))
        self.answered += queries
        return done

    def served_queries(self, arrived: np.ndarray) -> ServedQueries:
        rows = np.array(self.inferences, dtype=np.int64).reshape(-1, 3)
        begun, done, batch = (np.repeat(rows[:, column], rows[:, 2]) for column in range(3))
        return ServedQueries(np.asarray(arrived[: self.answered], dtype=np.int64), begun, done, batch)


def serve_closed(infer: Callable[[int], None], clock: Clock, enough: Callable[[int, int], bool]) -> ServedQueries:
    """Serve one query after another until `enough(queries, ns)`. A query arrives when the one before is answered."""
    journal = QueryJournal(infer, clock)
    begin = clock.now()
    moments = [begin]
    while not enough(journal.answered, moments[-1] - begin):
        moments.append(journal.answer(1))
    return journal.served_queries(np.array(moments))


def serve_open(
    arrived: np.ndarray,
    infer: Callable[[int], None],
    clock: Clock,
    sizes: list[int],
    batch_wait: int = 0,
    hopeless: Callable[[int], bool] | None = None,
) -> ServedQueries:
    """Serve queries that arrive at given moments (sorted, ns on `clock`), in that order.

    An inference answers the largest of the `sizes` that the waiting queries fill. Where fewer wait than the largest
    size, it waits for more until the oldest has waited `batch_wait` ns. Serving ends early where `hopeless(latency)` is
    True for a query.
    """
    journal = QueryJournal(infer, clock)
    # Plain lists: the first numpy call after a sleep takes 50 µs, all of which would be in the latency.
    moments, most = arrived.tolist(), sizes[-1]
    fitting = [max((size for size in sizes if size <= waiting), default=1) for waiting in range(most + 1)]
    count = len(moments)
    arrived_count = 0
    while (first := journal.answered) < count:
        full = first + most - 1
        patience = moments[first] + batch_wait
        clock.wait_until(min(patience, moments[full]) if full < count else patience)
        moment = clock.now()
        while arrived_count < count and moments[arrived_count] <= moment:
            arrived_count += 1
        chosen = fitting[min(arrived_count - first, most)]
        done = journal.answer(chosen)
        if hopeless is not None and any(hopeless(done - moment) for moment in moments[first : first + chosen]):
            break
    return journal.served_queries(arrived)
