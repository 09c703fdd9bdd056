"""Commands about many runs and about the machine: study, explore, corun, verify, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sonda.cli import completion
from sonda.cli.application import (
    Json,
    Tags,
    Verbose,
    app,
    hush,
    open_store,
    parse_workload_options,
    put,
    say,
    say_or_log,
    write_json,
)
from sonda.cli.own_options import WorkloadCommand
from sonda.cli.showing import detail_of, show_run


@app.command("study")
def study(
    reference: Annotated[
        str,
        typer.Argument(
            help="A published study's name or a file; without it, a list of studies.", autocompletion=completion.studies
        ),
    ] = "",
    scale: Annotated[
        str,
        typer.Option(help="A smaller or larger version that the study describes.", autocompletion=completion.scales),
    ] = "",
    repeat: Annotated[int | None, typer.Option(help="Repetitions of each configuration.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Discard the measurements and start again.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be measured, and stop.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show the results so far, and stop.")] = False,
    record: Annotated[
        Path | None, typer.Option(help="Write the operations as a dated file: JSON, or a table if it ends in .md.")
    ] = None,
    energy_probe: Annotated[
        str, typer.Option(help="Probes of energy runs, as energy-model:cpu=20..95 where there is no sensor.")
    ] = "",
    statistics: Annotated[
        str, typer.Option(help="Show these of the repetitions too, as in mean,minimum,maximum.")
    ] = "",
    page: Annotated[Path | None, typer.Option(help="Write the tables and their figures as an HTML page.")] = None,
    data: Annotated[str, typer.Option(help="Images to train on, if the study reads some.")] = "",
    workers: Annotated[int, typer.Option(help="Processes of this machine that share the simulations.")] = 0,
    on_cluster: Annotated[
        str,
        typer.Option(
            help="Address of a Dask scheduler, tcp://host:8786: its nodes measure, one run at a time each. local and "
            "slurm:partition=NAME start workers, and nodes for targets with nodes=."
        ),
    ] = "",
    nodes: Annotated[
        str, typer.Option(help="Which nodes: each (kind, as a column of its own), or a part of a kind's name.")
    ] = "",
    verbose: Verbose = 0,
    json: Json = False,
) -> None:
    """Run a study. If you interrupt it and start it again, it continues where it stopped.

    \b
    sonda study
    sonda study six-operations --scale small
    sonda study mine.toml --plan
    sonda study six-operations --scale small --show --page study.html
    """
    from shlex import quote

    from sonda.report.output import refuse_folders
    from sonda.report.screen import render
    from sonda.report.views.study.operations import write_recording
    from sonda.report.views.study.screen import plan_blocks, studies_blocks
    from sonda.report.views.study.view import StudyView
    from sonda.report.words import word_findings
    from sonda.studies.catalogue import add_statistics, carry_out, list_studies, load_plan, show_study
    from sonda.studies.results.recordings import recording

    refuse_folders(record, page)
    if not reference:
        rows = list_studies()
        write_json({"studies": rows}, "studies") if json else put(render(studies_blocks(rows)))
        return
    # What the next command must say too: without it another study is meant.
    given = {"repeat": repeat, "energy-probe": energy_probe, "data": data, "nodes": nodes}
    more = {"workers": workers, "on-cluster": on_cluster} if plan else {"statistics": statistics}
    typed = "".join(f" --{name} {quote(str(value))}" for name, value in {**given, **more}.items() if value)
    if plan:
        document = load_plan(reference, scale, repeat, energy_probe, data)
        blocks = plan_blocks(document, reference=quote(reference), options=typed)
        write_json(document, "plan") if json else put(render(blocks))
        return
    if show:
        document = show_study(reference, scale, repeat, open_store(), energy_probe, data, nodes)
    else:
        document = carry_out(
            reference, scale, repeat, again, open_store(), say_or_log, energy_probe, data, workers, on_cluster, nodes
        )
    hush()
    document = add_statistics(word_findings(document), statistics)
    if record is not None:
        write_recording(record, recording(document))
    view = StudyView(document, reference=quote(reference), options=typed)
    if page is not None:
        from sonda.report.page import write_view

        write_view(page, view)
    write_json(view.document()) if json else put(view.text(detail=detail_of(verbose)))


@app.command(
    "explore",
    short_help="Simulate a workload on many accelerators, find the best.",
    cls=WorkloadCommand,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def explore(
    context: typer.Context,
    workload: Annotated[
        str, typer.Argument(help="A built-in name or file.py:factory.", autocompletion=completion.workloads)
    ],
    on: Annotated[
        str,
        typer.Option(
            help="A simulated accelerator, sim:NAME; by default the workload's usual one.",
            autocompletion=completion.accelerators,
        ),
    ] = "",
    vary: Annotated[
        list[str] | None,
        typer.Option(help="A field and its values: multipliers=64,128 or read_ports=16..256*2 or mapping=stonne,best."),
    ] = None,
    set: Annotated[
        list[str] | None, typer.Option(help="Change the description for all points, e.g. clock_GHz=1; repeatable.")
    ] = None,
    mapping: Annotated[
        str, typer.Option(help="stonne or best, for all points.", autocompletion=completion.mappings)
    ] = "",
    input: Annotated[list[str] | None, typer.Option(help="Shape for file.py:factory; repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Threads while Sonda reads the model.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all points as a CSV file.")] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write all points as a Parquet file.")] = None,
    workers: Annotated[int, typer.Option(help="Processes of this machine that share the work.")] = 0,
    on_cluster: Annotated[
        str, typer.Option(help="Address of a Dask scheduler, tcp://host:8786; local starts one with --workers workers.")
    ] = "",
    search: Annotated[
        str, typer.Option(help="Search the front with at most this part of the points, e.g. 5%, instead of all.")
    ] = "",
    points_per_batch: Annotated[
        int | None, typer.Option(help="Points in a worker's batch; 20,000 by default.", min=1)
    ] = None,
    tag: Tags = None,
    verbose: Verbose = 0,
    rows: Annotated[int | None, typer.Option("--rows", help="Points of the front to list.", min=0)] = None,
    json: Json = False,
) -> None:
    """Simulate a workload on many accelerators at once and show which are worth building.

    \b
    sonda explore dlrm --vary multipliers=64..1024*2 --vary dn_bw=16,64,256
    sonda explore mlp --batch 8 --on sim:tpu-16x16 --vary rows,columns=8,16,32 --csv points.csv

    Fields are those of the accelerator's description; on=sim:A,sim:B and mapping=stonne,best vary too. Options that are
    not listed here belong to the workload.
    """
    from sonda.analysis.comparison.runs import parse_percent
    from sonda.record.errors import SondaError
    from sonda.record.progress import Lasting
    from sonda.report.output import refuse_folders
    from sonda.report.views.exploration import write_points
    from sonda.studies.executors.choice import executor_for
    from sonda.studies.explore.exploration import BATCH
    from sonda.studies.explore.exploration import explore as explore_space
    from sonda.studies.explore.search import search as search_front
    from sonda.studies.explore.space import parse_space
    from sonda.targets.job import Job

    refuse_folders(csv, parquet)
    job = Job(
        workload=workload,
        options=parse_workload_options(context, workload, input),
        on=on,
        seed=seed,
        threads=threads,
        mapping=mapping,
        set=" ".join(set or []),
    )
    if search and points_per_batch:
        raise SondaError("--points-per-batch means nothing to a search", "leave it out: rounds are small")
    store = open_store()
    with executor_for(workers, on_cluster, say=say) as executor:
        space = parse_space(vary or [])
        try:
            if search:
                exploration = search_front(job, space, store, parse_percent(search), tag or [], say, executor)
            else:
                exploration = explore_space(job, space, store, tag or [], say, executor, points_per_batch or BATCH)
        except KeyboardInterrupt:
            say(Lasting("whole batches are kept: the same command goes on with the rest"))
            raise
    hush()
    for path, form in ((csv, "csv"), (parquet, "parquet")):
        if path is not None:
            write_points(path, exploration.points, form)
    show_run(exploration, store, json, rows, verbose)


@app.command("corun", short_help="Run programs side by side, say how they slow each other.")
def corun(
    participants: Annotated[
        list[str],
        typer.Argument(
            help="Two or more: mlp 'cnn --batch 8' a=stress-cache 'cmd:python train.py' 'window:COMMAND'.",
            autocompletion=completion.workloads,
        ),
    ],
    cores: Annotated[str, typer.Option(help="Cores of each, in order: 0,1 or 0-3,4-7 or 0+2,1; few are shared.")] = "",
    seconds: Annotated[float, typer.Option(help="Length of a window.")] = 5.0,
    repeat: Annotated[int, typer.Option(help="Repeat everything N times, with new processes.")] = 3,
    timeout: Annotated[float, typer.Option(help="Give a program up after N seconds without a step.")] = 120.0,
    ways: Annotated[str, typer.Option(help="Ways of the last-level cache for each, in order: 4,6.")] = "",
    partition: Annotated[str, typer.Option(help="Masks of ways by name: mlp=0xf,cnn=0xf0.")] = "",
    bandwidth: Annotated[str, typer.Option(help="Memory bandwidth for each, in order, in the machine's unit.")] = "",
    sweep_ways: Annotated[bool, typer.Option("--sweep-ways", help="Give the first program 1, 2, … ways.")] = False,
    probe: Annotated[str, typer.Option(help="energy; more events of the PMU, pmu:branch-misses; your own.")] = "",
    tag: Tags = None,
    verbose: Verbose = 0,
    json: Json = False,
) -> None:
    """Run programs alone, in pairs and all together, and say how much they slow each other.

    \b
    sonda corun "mlp --train" cnn stress-bandwidth --cores 0,1,2
    sonda corun mlp "cmd:python train.py" --seconds 3

    A command after cmd: is measured by its steps where it is a PyTorch program, by whole runs otherwise; one after
    window: runs on while the others are measured.
    """
    from sonda.record.progress import Lasting
    from sonda.targets.corun.launcher import corun as carry_out
    from sonda.targets.corun.plan import CorunSettings

    store = open_store()
    for name in tag or []:
        store.check_tag(name)
    setting = CorunSettings(seconds, repeat, timeout, ways, partition, bandwidth, sweep_ways, probe)
    experiment = carry_out(participants, store, cores, setting, say_or_log, warn=lambda text: say(Lasting(text)))
    hush()
    for name in tag or []:
        store.tag(experiment.id, name)
    show_run(experiment, store, json, verbose=verbose)


@app.command(
    "verify",
    short_help="Hold simulated accelerators against other simulators.",
    cls=WorkloadCommand,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def verify(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(help="What to compare with: stonne or scalesim.", autocompletion=completion.simulators),
    ],
    subject: Annotated[
        str,
        typer.Argument(
            help="stonne: a JSON file of reference runs; scalesim: a model, or built-in products.",
            autocompletion=completion.workloads,
        ),
    ] = "",
    on: Annotated[
        str,
        typer.Option(
            help="scalesim: a simulated mesh; sim:tpu-16x16 by default.", autocompletion=completion.accelerators
        ),
    ] = "",
    set: Annotated[list[str] | None, typer.Option(help="scalesim: change its description, e.g. rows=8.")] = None,
    input: Annotated[list[str] | None, typer.Option(help="scalesim: shape for file.py:factory; repeatable.")] = None,
    json: Json = False,
) -> None:
    """Compare the simulated accelerators with another simulator; exit code 1 if anything differs.

    \b
    sonda verify stonne golden.json
    sonda verify scalesim resnet50 --batch 1 --on sim:tpu-128x128

    Against STONNE: cycles, accesses and counters of recorded runs. Against SCALE-Sim: the mesh beside its published
    formulas, layer by layer. Other options belong to the model.
    """
    from sonda.record.errors import SondaError, nearest
    from sonda.targets.job import Job, parse_options

    if subject.startswith("-"):
        raise SondaError(
            f"{subject} is an option of a model, which is not named", f"write: sonda verify {what} MODEL …"
        )
    options = parse_options(context.args, {"input": ",".join(input)} if input else {})
    if what == "stonne":
        _verify_stonne(subject, [*options, *(["on"] if on else []), *(["set"] if set else [])], json)
    elif what == "scalesim":
        from sonda.report.screen import render
        from sonda.report.views.verification import scalesim_blocks
        from sonda.targets.simulated.scalesim import verify_mesh

        say(f"holding {on or 'a mesh'} against SCALE-Sim")
        result = verify_mesh(Job(workload=subject, options=options, on=on, set=" ".join(set or [])))
        hush()
        document = result.to_document()
        write_json(document, "scalesim verification") if json else put(render(scalesim_blocks(document)))
        if result.exit_status:
            raise SystemExit(result.exit_status)
    else:
        raise SondaError(f"nothing is known of {what!r}", nearest(what, completion.SIMULATORS))


def _verify_stonne(file: str, options: list[str], json: bool) -> None:
    from sonda.accelerators.formats.stonne.verification import verify_stonne
    from sonda.record.errors import SondaError
    from sonda.report.screen import render
    from sonda.report.views.verification import stonne_blocks

    if options:
        raise SondaError(f"--{options[0]} means nothing to verify stonne", "the runs of the file say what to simulate")
    if not file:
        raise SondaError("no file of reference runs was given", "write: sonda verify stonne FILE.json")
    result = verify_stonne(file, say)
    hush()
    document = result.to_document()
    write_json(document, "stonne verification") if json else put(render(stonne_blocks(document)))
    if result.exit_status:
        raise SystemExit(result.exit_status)


@app.command("doctor", short_help="Say what this machine can measure, and what would help.")
def doctor(
    validate: Annotated[
        bool, typer.Option("--validate", help="Count known work with every probe; exit code 1 if one counts wrong.")
    ] = False,
    measure: Annotated[bool, typer.Option("--measure", help="Measure the machine's ceilings again, and stop.")] = False,
    json: Json = False,
) -> None:
    """Say what this machine can measure, what it cannot, and what would change that.

    \b
    sonda doctor
    sonda doctor --validate
    sonda doctor --measure
    """
    if validate:
        _validate(json)
        return
    from sonda.probes.cache_partition.partition import check_left_partition
    from sonda.probes.doctor import examine_machine, measure_ceilings
    from sonda.report.screen import render
    from sonda.report.views.listing import checks_document, doctor_blocks

    root = open_store().root
    left = [] if measure else check_left_partition(root)
    examined = measure_ceilings(root, say) if measure else examine_machine(store=root)
    hush()
    checks = [(check.name, check.state, check.detail, check.remedy) for check in examined] + left
    if json:
        write_json(checks_document(checks))
    else:
        put(render(doctor_blocks(checks)))


def _validate(json: bool) -> None:
    from sonda.probes.validation.trust import validate_probes
    from sonda.report.screen import render
    from sonda.report.views.validation import validation_blocks

    validation = validate_probes(say)
    hush()
    document = validation.to_document()
    write_json(document, "validation") if json else put(render(validation_blocks(document)))
    if validation.exit_status:
        raise SystemExit(validation.exit_status)
