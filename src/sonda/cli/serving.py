"""`sonda serve`: a model under traffic."""

from __future__ import annotations

from typing import Annotated

import typer

from sonda.cli import completion
from sonda.cli.application import (
    Json,
    Precision,
    Tags,
    Verbose,
    app,
    help_on_probes,
    hush,
    open_store,
    parse_workload_options,
    say,
)
from sonda.cli.own_options import WorkloadCommand
from sonda.cli.showing import show_run


@app.command(
    "serve",
    short_help="Serve a model: latency percentiles, throughput, energy.",
    cls=WorkloadCommand,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def serve(
    context: typer.Context,
    workload: Annotated[
        str, typer.Argument(help="A built-in name or file.py:factory.", autocompletion=completion.workloads)
    ],
    scenario: Annotated[
        str,
        typer.Option(help="single-stream, multi-stream, server or offline.", autocompletion=completion.scenarios),
    ] = "single-stream",
    qps: Annotated[float | None, typer.Option(help="server: queries per second that arrive (Poisson).")] = None,
    find_qps: Annotated[
        bool, typer.Option("--find-qps", help="server: find the highest rate that meets --latency-bound.")
    ] = False,
    latency_bound: Annotated[str, typer.Option(help="server: how long a query may take, e.g. 50ms.")] = "",
    percentile: Annotated[
        float | None,
        typer.Option(help="Percentile of latency; by default 90 for single-stream, 99 otherwise.", min=50, max=99.99),
    ] = None,
    queries: Annotated[int | None, typer.Option(help="Queries to send.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Time to send them; without either, 10 s and as many as the percentile needs."),
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Samples of a query; 8 multi-stream, 1 otherwise.", min=1)] = None,
    max_batch: Annotated[
        int | None, typer.Option(help="server, offline: most queries in one inference; 1, and 32 offline.", min=1)
    ] = None,
    batch_wait: Annotated[
        str, typer.Option(help="server: how long a query may wait for others to share its inference, e.g. 2ms.")
    ] = "",
    weights: Annotated[
        str,
        typer.Option(
            help="A run that trained this model (sonda run --train --epochs), or its weights.npz.",
            autocompletion=completion.runs,
        ),
    ] = "",
    backend: Annotated[
        str,
        typer.Option(
            help="sonda, or loadgen: MLPerf's own generator makes the traffic.", autocompletion=completion.backends
        ),
    ] = "sonda",
    on: Annotated[
        str, typer.Option(help="Where: cpu, cpu/8 (8 threads), cuda:0.", autocompletion=completion.targets)
    ] = "cpu",
    input: Annotated[
        list[str] | None, typer.Option(help="Shape for file.py:factory, e.g. 1x3x224x224; repeatable.")
    ] = None,
    warmup: Annotated[int, typer.Option(help="Inferences of each size before timing begins.")] = 3,
    threads: Annotated[int | None, typer.Option(help="Threads; all that it may use by default.")] = None,
    precision: Precision = "float32",
    compile: Annotated[bool, typer.Option("--compile", help="Compile the model.")] = False,
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Channels last in memory.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of weights, data and arrivals.", min=0)] = 0,
    probe: Annotated[
        list[str] | None, typer.Option(help=f"{help_on_probes('energy', 'energy-model')}; repeatable.")
    ] = None,
    tag: Tags = None,
    verbose: Verbose = 0,
    redact: Annotated[bool, typer.Option("--redact", help="Keep no host name.")] = False,
    json: Json = False,
) -> None:
    """Serve a model under one of MLPerf's scenarios: latency percentiles, throughput, energy per query.

    \b
    sonda serve resnet18 --image 64x64
    sonda serve cnn --scenario server --find-qps --latency-bound 20ms --max-batch 8 --batch-wait 2ms

    Other options belong to the workload.
    """
    from msgspec.structs import replace

    from sonda.targets.job import Job
    from sonda.targets.serving.launcher import measure_serving
    from sonda.targets.serving.traffic import ServingTraffic, parse_nanoseconds
    from sonda.targets.serving.weights import with_weights

    store = open_store()
    for name in tag or []:
        store.check_tag(name)
    traffic = ServingTraffic(
        scenario=scenario,
        queries=queries,
        seconds=seconds,
        qps=qps,
        find=find_qps,
        bound=parse_nanoseconds("--latency-bound", latency_bound) if latency_bound else None,
        percentile=(percentile or 0.0) / 100,
        samples=samples or 0,
        max_batch=max_batch or 0,
        batch_wait=parse_nanoseconds("--batch-wait", batch_wait) if batch_wait else 0,
        backend=backend,
    )
    job = Job(
        workload=workload,
        options=parse_workload_options(context, workload, input),
        on=on,
        warmup=warmup,
        seed=seed,
        threads=threads,
        precision=precision,
        compile=compile,
        channels_last=channels_last,
        probe=",".join(probe or ()),
        redact=redact,
    )
    if weights:
        job, path = with_weights(job, weights, store)
        traffic = replace(traffic, weights=path)
    run = measure_serving(job, traffic, store, say=say)
    hush()
    for name in tag or []:
        store.tag(run.id, name)
    show_run(run, store, json, verbose=verbose)
