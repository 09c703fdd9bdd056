"""MLPerf's own traffic generator, LoadGen, in place of Sonda's, with the same model.

LoadGen decides when queries come and measures them itself. The run keeps its results beside Sonda's. For Sonda a query
arrives when LoadGen hands it over, which under load is a little after the moment that LoadGen planned.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import numpy as np

from sonda.record.errors import MissingExtraError, SondaError
from sonda.targets.serving.loop import FailedQueryError, HostClock, QueryJournal, ServedQueries
from sonda.targets.serving.scenarios import Infer
from sonda.targets.serving.traffic import ServingTraffic

DETAIL = "mlperf_log_detail.txt"
LOG_MARK = ":::MLLOG "
KEPT_KEYS = ("result_", "early_stopping_", "loadgen_version")
"""Beginnings of the keys of LoadGen's detail log that a run keeps."""
LIBRARY_SAMPLES = 1024
"""Samples that LoadGen is told of; the model is given the same input every time."""
SLACK = 0.5
"""LoadGen makes the queries of closed loops beforehand, by an expected latency. This factor makes it expect a shorter
one, so that there are enough queries."""


def run_loadgen(
    traffic: ServingTraffic, count: int, rate: float, seed: int, infer: Infer, directory: Path
) -> tuple[ServedQueries, dict[str, Any]]:
    """Serve `count` queries through LoadGen, about `rate` a second; returns them and results from its detail log.

    Raises MissingExtraError where it is not installed, FailedQueryError when the model fails.
    """
    try:
        import mlperf_loadgen as loadgen
    except ImportError:
        raise MissingExtraError("mlcommons-loadgen", "serving") from None
    if traffic.batch_wait:
        raise SondaError("--batch-wait is there without --backend only", "leave one of them out")
    server = _Server(traffic, infer, loadgen)
    system = loadgen.ConstructSUT(server.issue, lambda: None)
    library = loadgen.ConstructQSL(LIBRARY_SAMPLES, LIBRARY_SAMPLES, lambda samples: None, lambda samples: None)
    logs = loadgen.LogSettings()
    logs.log_output.outdir = str(directory)
    logs.log_output.copy_summary_to_stdout = False
    try:
        loadgen.StartTestWithLogSettings(system, library, _settings(traffic, count, rate, seed, loadgen), logs)
    finally:
        server.close()
        loadgen.DestroyQSL(library)
        loadgen.DestroySUT(system)
    if server.failed is not None:
        raise server.failed
    return server.journal.served_queries(np.array(server.arrived)), read_detail((directory / DETAIL).read_text("utf-8"))


def read_detail(text: str) -> dict[str, Any]:
    """Results of a detail log by LoadGen's keys, and its error lines under `errors`; a VALID run may have some too."""
    results: dict[str, Any] = {}
    errors = []
    for line in text.splitlines():
        if LOG_MARK not in line:
            continue
        try:
            entry = msgspec.json.decode(line.partition(LOG_MARK)[2])
            key, value, metadata = str(entry["key"]), entry["value"], entry.get("metadata", {})
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            continue
        if metadata.get("is_error"):
            errors.append(f"{key}: {value}")
        elif key.startswith(KEPT_KEYS) and isinstance(value, str | int | float | bool):
            results[key] = value
    return {**results, "errors": errors}


class _Server:
    """Answers LoadGen's queries: at once in closed loops and offline, in a thread of its own for scenario server."""

    def __init__(self, traffic: ServingTraffic, infer: Infer, loadgen: Any) -> None:
        self.traffic = traffic
        self.loadgen = loadgen
        self.clock = HostClock()
        self.journal = QueryJournal(infer, self.clock)
        self.arrived: list[int] = []
        self.failed: FailedQueryError | None = None
        self.waiting: SimpleQueue[int | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="sonda-serving", daemon=True)
        if traffic.scenario == "server":
            self.thread.start()

    def issue(self, samples: Sequence[Any]) -> None:
        """Called by LoadGen, in a thread of its own."""
        moment = self.clock.now()
        identities = [sample.id for sample in samples]
        if self.traffic.closed:
            self.arrived.append(moment)
            self._answer(identities, 1)
            return
        self.arrived += [moment] * len(identities)
        if self.traffic.scenario == "server":
            for identity in identities:
                self.waiting.put(identity)
            return
        while identities:
            batch = self._fitting(len(identities))
            self._answer(identities[:batch], batch)
            identities = identities[batch:]

    def close(self) -> None:
        if self.thread.is_alive():
            self.waiting.put(None)
            self.thread.join()

    def _work(self) -> None:
        """Answer as many waiting queries as fit into one inference, again and again, until `close`."""
        pending: list[int] = []
        while True:
            while not pending or (not self.waiting.empty() and len(pending) < self.traffic.max_batch):
                identity = self.waiting.get()
                if identity is None:
                    return
                pending.append(identity)
            batch = self._fitting(len(pending))
            self._answer(pending[:batch], batch)
            pending = pending[batch:]

    def _fitting(self, waiting: int) -> int:
        return max(size for size in self.traffic.sizes if size <= waiting)

    def _answer(self, identities: list[int], queries: int) -> None:
        # An exception must not reach LoadGen's C++, and a query without an answer would have it wait for ever.
        if self.failed is None:
            try:
                self.journal.answer(queries)
            except FailedQueryError as error:
                self.failed = error
        answers = [self.loadgen.QuerySampleResponse(identity, 0, 0) for identity in identities]
        self.loadgen.QuerySamplesComplete(answers)


def _settings(traffic: ServingTraffic, count: int, rate: float, seed: int, loadgen: Any) -> Any:
    settings = loadgen.TestSettings()
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.scenario = {
        "single-stream": loadgen.TestScenario.SingleStream,
        "multi-stream": loadgen.TestScenario.MultiStream,
        "server": loadgen.TestScenario.Server,
        "offline": loadgen.TestScenario.Offline,
    }[traffic.scenario]
    settings.min_query_count = count
    if traffic.scenario != "server":  # there LoadGen calls reaching it an error
        settings.max_query_count = count
    settings.min_duration_ms = 0
    settings.schedule_rng_seed = settings.sample_index_rng_seed = settings.qsl_rng_seed = seed
    expected = max(1, int(SLACK * 1e9 / rate))
    settings.single_stream_expected_latency_ns = settings.multi_stream_expected_latency_ns = expected
    settings.single_stream_target_latency_percentile = traffic.percentile
    settings.multi_stream_target_latency_percentile = traffic.percentile
    settings.multi_stream_samples_per_query = traffic.samples
    settings.server_target_latency_percentile = traffic.percentile
    settings.offline_expected_qps = rate
    if traffic.scenario == "server":
        settings.server_target_qps = rate
        settings.server_target_latency_ns = traffic.bound
    return settings
