"""A point of a study whose workload is served: traffic instead of steps, of a model that may be trained first.

`scenario = "server"` makes it one; the other settings are those of `sonda serve`. `trained = 3` trains the model for
three epochs before it is served, once for all points that share it, on the device of the point or on `trained_on`;
`data`, `images`, `split` and `batch` are then those of the training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec

from sonda.record.errors import SondaError
from sonda.record.run import Run
from sonda.record.store import Store
from sonda.studies.file.settings import name_of, number_of, switch_of
from sonda.studies.file.study import Configuration, Scalar
from sonda.targets.job import Job, make_job, option_text
from sonda.targets.pipeline import RunLabels
from sonda.targets.serving.launcher import measure_serving
from sonda.targets.serving.traffic import ServingTraffic, check_traffic, parse_nanoseconds
from sonda.targets.serving.weights import with_weights
from sonda.targets.serving.worker import options_with_batch

SCENARIO, TRAINED, TRAINED_ON = "scenario", "trained", "trained_on"
SETTINGS = (
    SCENARIO, "qps", "find_qps", "latency_bound", "percentile", "queries", "samples", "max_batch", "batch_wait",
    "backend", "weights", TRAINED, TRAINED_ON,
)  # fmt: skip
"""Settings of traffic; `seconds` is how long it lasts."""
NONE = "none"
"""A bound or a wait that is none, so that scenarios with and without one can share an axis; a rate of 0 is none."""
OF_TRAINING = ("data", "images", "split", "transfer", "batch", "learning_rate", "workers")
NUMBERS = {"qps": False, "percentile": False, "queries": True, "samples": True, "max_batch": True, TRAINED: True}
"""Settings that are numbers, and whether they are whole."""
TEXT = (SCENARIO, "latency_bound", "batch_wait", "backend", "weights", TRAINED_ON)


def is_served(configuration: Mapping[str, Scalar]) -> bool:
    """Whether the workload is served."""
    return SCENARIO in configuration


def traffic_of(configuration: Configuration) -> ServingTraffic:
    """The traffic that a configuration asks for. Raises SondaError for what cannot be."""
    settings = _given_settings(configuration)
    for name, whole in NUMBERS.items():
        number_of(name, settings.get(name, 0), whole)
    for name in TEXT:
        if not isinstance(settings.get(name, ""), str):
            raise SondaError(f"{name} cannot be {option_text(settings[name])}", "write it in quotes")
    bound, wait = str(settings.get("latency_bound", NONE)), str(settings.get("batch_wait", NONE))
    return check_traffic(
        ServingTraffic(
            scenario=str(settings[SCENARIO]),
            queries=int(settings["queries"]) if settings.get("queries") else None,
            seconds=float(number_of("seconds", configuration["seconds"])) if "seconds" in configuration else None,
            qps=float(settings["qps"]) if settings.get("qps") else None,
            find=switch_of("find_qps", settings.get("find_qps", False)),
            bound=parse_nanoseconds("latency_bound", bound) if bound != NONE else None,
            percentile=float(settings.get("percentile", 0.0)) / 100,
            samples=int(settings.get("samples", 0)),
            max_batch=int(settings.get("max_batch", 0)),
            batch_wait=parse_nanoseconds("batch_wait", wait) if wait != NONE else 0,
            backend=str(settings.get("backend", "sonda")),
        )
    )


def served_job(configuration: Configuration) -> Job:
    """The model that is served. Raises SondaError for what cannot be."""
    away = (*SETTINGS, "seconds", *(OF_TRAINING if _epochs(configuration) else ()))
    job = make_job({key: value for key, value in configuration.items() if name_of(key) not in away})
    options_with_batch(job, 1)
    return job


def training_job(configuration: Configuration) -> Job | None:
    """The training that comes first; None where there is none."""
    epochs = _epochs(configuration)
    if not epochs:
        return None
    training = {
        key: value for key, value in configuration.items() if name_of(key) not in (*SETTINGS, "seconds", "probe")
    }
    on = _given_settings(configuration).get(TRAINED_ON) or training.get("on", "cpu")
    return make_job({**training, "on": on, "train": True, "epochs": epochs})


def check_served(configuration: Configuration) -> None:
    """Raise SondaError for traffic, a model or a training that cannot be."""
    if not is_served(configuration):
        extra = next((key for key in configuration if name_of(key) in SETTINGS), "")
        if extra:
            raise SondaError(f"{extra} is for a model that is served", 'say how: scenario = "server"')
        return
    from sonda.workloads.catalogue import describe
    from sonda.workloads.networks.image_classifiers import require_classifier

    traffic_of(configuration)
    job = served_job(configuration)
    workload = describe(job.workload, job.options)
    if training_job(configuration) is not None:
        if configuration.get("weights"):
            raise SondaError("weights and trained do not go together", "give one of them")
        require_classifier(workload)


def measure_served(
    configuration: Configuration, store: Store, place: RunLabels, train: Callable[[Job, Store, RunLabels], Run]
) -> Run:
    """Serve the point; `train` runs the training that comes first, where the store does not hold it yet."""
    job, traffic = served_job(configuration), traffic_of(configuration)
    reference = str(configuration.get("weights", ""))
    training = training_job(configuration)
    if training is not None:
        reference = hashlib.sha256(msgspec.json.encode(training)).hexdigest()[:16]
        if not store.has(reference) or store.one(reference).info.status != "complete":
            train(training, store, RunLabels(reference, study=place.study))
    if reference:
        job, path = with_weights(job, reference, store)
        traffic = msgspec.structs.replace(traffic, weights=path)
    return measure_serving(job, traffic, store, place)


def _epochs(configuration: Configuration) -> int:
    return int(_given_settings(configuration).get(TRAINED, 0))


def _given_settings(configuration: Configuration) -> dict[str, Scalar]:
    return {name_of(key): value for key, value in configuration.items() if name_of(key) in SETTINGS}
