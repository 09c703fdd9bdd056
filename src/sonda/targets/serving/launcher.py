"""The target of `sonda serve`: a model in a process of its own under traffic. Every query is a span."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import msgspec
import numpy as np

from sonda.probes.machine.contamination import ContaminationWatch, find_disturbances
from sonda.probes.machine.environment import wait_policy
from sonda.record.errors import SondaError
from sonda.record.progress import Expected, Say
from sonda.record.run import Run
from sonda.record.spans import Spans, Words
from sonda.record.store import Store
from sonda.record.target import ServingTarget
from sonda.record.workload import Workload
from sonda.targets.applicability import drop_inapplicable
from sonda.targets.circumstances import clocked_circumstances
from sonda.targets.instrument import AROUND, Launcher, Observation, RunPlan
from sonda.targets.instruments.registry import instruments_for
from sonda.targets.job import Job, check_job
from sonda.targets.local.child import run_child
from sonda.targets.local.worker import TRAFFIC
from sonda.targets.pipeline import STARTING_S, RunLabels, make_run
from sonda.targets.serving.traffic import SECONDS, ServingTraffic, check_traffic
from sonda.targets.serving.worker import QUERIES, options_with_batch
from sonda.targets.target import available_threads, parse_target, require_one_device

SERVING = "serving"
"""Where a run's `target` keeps its traffic and what became of it."""


def _describe_serving(job: Job, traffic: ServingTraffic) -> str:
    """The line on the screen while a model is served, with the expected s where time or rate of queries are given."""
    text = f"serving {job.workload} on {job.on}, {traffic.scenario}"
    if traffic.find or (traffic.queries is not None and not traffic.qps):
        return text
    at_rate = traffic.queries / traffic.qps if traffic.queries is not None and traffic.qps else None
    return Expected(text, STARTING_S + (at_rate or traffic.seconds or SECONDS))


def measure_serving(
    job: Job, traffic: ServingTraffic, store: Store, labels: RunLabels | None = None, say: Say = lambda text: None
) -> Run:
    """Serve a workload under traffic and keep every query. Raises SondaError when it cannot be served."""
    launcher = ServingLauncher(job, traffic)
    return make_run(launcher, instruments_for(job.probe, launcher), store, labels, say)


class ServingLauncher(Launcher):
    """Serves a job in a process of its own. Raises SondaError for what cannot be served."""

    kind = "serving"
    offers = frozenset({AROUND})

    def __init__(self, job: Job, traffic: ServingTraffic) -> None:
        (job, self.inapplicable_notes), self.traffic = drop_inapplicable(check_job(job)), check_traffic(traffic)
        self.device = device = require_one_device(parse_target(job.on))
        if device.kind == "sim" or job.framework != "torch" or job.train:
            refused = (
                job.on if device.kind == "sim" else f"--framework {job.framework}" if not job.train else "training"
            )
            raise SondaError(f"{refused} cannot be served", "use a PyTorch model with --on cpu or cuda:N")
        options_with_batch(job, 1)  # what the user said of sizes is refused here, before a process is started
        if job.threads and device.threads and job.threads != device.threads:
            raise SondaError(f"--on {job.on} and --threads {job.threads} do not agree", "give one of them")
        self.threads = job.threads or device.threads or available_threads()
        self.job = msgspec.structs.replace(job, threads=self.threads)

    def plan(self, store: Store, directory: Path, say: Say) -> RunPlan:
        (directory / TRAFFIC).write_bytes(msgspec.json.encode(self.traffic))
        return RunPlan(self.kind, store, directory, say, self.job, on_gpu=self.device.kind == "cuda")

    def launch(self, plan: RunPlan, environment: Mapping[str, str]) -> None:
        plan.say(_describe_serving(self.job, self.traffic))
        with ContaminationWatch() as self.watch:
            self.begin = perf_counter_ns()
            self.outcome = run_child(self.job, plan.directory, self.threads, environment, plan.processes.add)
            self.end = perf_counter_ns()

    def observe(self, plan: RunPlan) -> Observation:
        job, traffic, watch = self.job, self.traffic, self.watch
        on = f"cuda:{self.device.index}" if plan.on_gpu else "cpu"
        moments = np.load(plan.directory / QUERIES)
        description = dict(self.outcome.workload)
        facts = description.pop(SERVING)
        flags = find_disturbances(watch.before, watch.after, self.threads, wait_policy())
        return Observation(
            query_spans(moments, self.begin, self.end, traffic, on),
            workload=Workload.of({**description, "framework": job.framework, **job.settings_record()}),
            target=ServingTarget.of(
                spec=job.on,
                device=self.device.kind,
                threads=self.threads,
                serving={**traffic.describe(), **facts},
            ),
            circumstances=clocked_circumstances(job.redact, [flag.sentence for flag in flags if flag.contaminated]),
            begin=self.begin,
            end=self.end,
            used=("cpu", on) if plan.on_gpu else ("cpu",),
            notes=self.inapplicable_notes,
        )


def query_spans(moments: np.ndarray, begin: int, end: int, traffic: ServingTraffic, device: str) -> Spans:
    """Spans of a served run: the run, a part from the first arrival to the last answer, and every query.

    `moments` has the rows arrived, begun, done (ns) and batch, and a column for every query. `begin` and `end` are
    those of the run. A query's span lasts from its planned arrival to its answer. Its metric `queue_wait` ends when its
    inference began; `inference_queries` is how many queries that inference answered.
    """
    arrived, begun, done, batch = (np.asarray(row, dtype=np.int64) for row in moments)
    count = len(arrived)
    first, last = (int(arrived[0]), int(done.max())) if count else (begin, begin)
    nothing = np.full(2, np.nan)
    metrics: dict[str, Any] = {
        "queue_wait:measured": np.concatenate((nothing, begun - arrived)),
        "inference_queries:counted": np.concatenate((nothing, batch)),
        "samples:nominal": np.concatenate((nothing, np.full(count, float(traffic.samples)))),
    }
    return Spans(
        {
            "parent": np.concatenate(([-1, 0], np.ones(count, dtype=np.int64))),
            "call": np.concatenate(([0, 0], np.arange(count))),
            "start": np.concatenate(([0, first - begin], arrived - begin)),
            "duration": np.concatenate(([end - begin, last - first], done - arrived)),
        },
        {
            "kind": Words(np.minimum(np.arange(count + 2), 2).astype(np.int32), ("run", "part", "query")),
            "name": Words(np.minimum(np.arange(count + 2), 2).astype(np.int32), ("run", "test", traffic.scenario)),
            "device": Words.constant(device, count + 2),
        },
        metrics,
    )
