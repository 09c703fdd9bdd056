"""The target of `sonda serve`: a model in a process of its own under traffic, every query a span."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import msgspec
import numpy as np

from sonda.probes.contamination import Watch, contamination
from sonda.probes.environment import versions, wait_policy
from sonda.probes.machine import machine_record
from sonda.record.errors import SondaError
from sonda.record.run import ProbeState, Run, RunInfo, new_id, now, write_run
from sonda.record.saying import Expected, Say
from sonda.record.span import Spans, Words
from sonda.record.store import Store
from sonda.targets.applicable import applied
from sonda.targets.child import run_child
from sonda.targets.energy_sampling import ENERGY, MODEL, sampling
from sonda.targets.energy_sampling import asked as asked_energy
from sonda.targets.job import Job, check_job
from sonda.targets.keeping import STARTING_S, Place
from sonda.targets.serving_worker import QUERIES, sized
from sonda.targets.spec import available_threads, parse_target, runnable
from sonda.targets.traffic import SECONDS, Traffic, check_traffic
from sonda.targets.worker import TRAFFIC

SERVING = "serving"
"""Where a run's `target` keeps its traffic and what became of it."""


def _lasting(job: Job, traffic: Traffic) -> str:
    """What is said while a model is served: how long it takes, where time or rate of the queries are given."""
    text = f"serving {job.workload} on {job.on}, {traffic.scenario}"
    if traffic.find or (traffic.queries is not None and not traffic.qps):
        return text
    at_rate = traffic.queries / traffic.qps if traffic.queries is not None and traffic.qps else None
    return Expected(text, STARTING_S + (at_rate or traffic.seconds or SECONDS))


def measure_serving(
    job: Job, traffic: Traffic, store: Store, place: Place | None = None, say: Say = lambda text: None
) -> Run:
    """Serve a workload under traffic and keep every query. Raises SondaError when it cannot be served."""
    (job, without), traffic, place = applied(check_job(job)), check_traffic(traffic), place or Place()
    device = runnable(parse_target(job.on))
    if device.kind == "sim" or job.framework != "torch" or job.train:
        what = job.on if device.kind == "sim" else f"--framework {job.framework}" if not job.train else "training"
        raise SondaError(f"{what} cannot be served", "use a PyTorch model with --on cpu or cuda:N")
    sized(job, 1)  # what the user said of sizes is refused here, before a process is started
    for probe in job.probe.split(","):
        if probe.strip().partition(":")[0] not in ("", ENERGY, MODEL):
            raise SondaError(f"--probe {probe} is not there while a model is served", f"use {ENERGY} or {MODEL}")
    if job.threads and device.threads and job.threads != device.threads:
        raise SondaError(f"--on {job.on} and --threads {job.threads} do not agree", "give one of them")
    threads = job.threads or device.threads or available_threads()
    job = msgspec.structs.replace(job, threads=threads)
    with store.scratch() as directory:
        (directory / TRAFFIC).write_bytes(msgspec.json.encode(traffic))
        with sampling(asked_energy(job.probe), directory, say) as energy:
            say(_lasting(job, traffic))
            with Watch() as watch:
                begin = perf_counter_ns()
                outcome = run_child(job, directory, threads, energy.environment)
                end = perf_counter_ns()
        energy.finish(begin, end, ["cpu", f"cuda:{device.index}"] if device.kind == "cuda" else ["cpu"])
        moments = np.load(directory / QUERIES)
    about = dict(outcome.workload)
    facts = about.pop(SERVING)
    disturbed = contamination(watch.before, watch.after, threads, wait_policy())
    fields = energy.said({"probes": [ProbeState("clock", "ok")], "notes": without})
    info = RunInfo(
        id=place.identity or new_id(),
        created=now(),
        status="complete",
        workload={**about, "framework": job.framework, **job.how()},
        target={
            "spec": job.on,
            "device": device.kind,
            "threads": threads,
            SERVING: {**traffic.described(), **facts},
            **energy.target,
        },
        machine=machine_record(redact=job.redact),
        versions=versions(),
        seed=job.seed,
        disturbed=[flag.sentence for flag in disturbed if flag.contaminated],
        group=place.group,
        study=place.study,
        point=place.point,
        **fields,
    )
    spans = query_spans(moments, begin, end, traffic, f"cuda:{device.index}" if device.kind == "cuda" else "cpu")
    return write_run(store.root, info, energy.added(spans), energy.samples)


def query_spans(moments: np.ndarray, begin: int, end: int, traffic: Traffic, device: str) -> Spans:
    """The run, the part that counts from the first arrival to the last answer, and a span for every query.

    `moments` are rows arrived, begun, done (ns) and batch, a column for every query; `begin` and `end` the run's.
    A query's span lasts from its planned arrival to its answer, `queue_wait` until its inference began, which
    `inference_queries` shared.
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
