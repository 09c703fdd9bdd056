"""Every kind of advice in words, and words for all that analysis can advise."""

from __future__ import annotations

import pytest

from sonda.analysis.findings import Finding, Remark
from sonda.analysis.rules import remedies as offered
from sonda.analysis.rules.advice import (
    AtPlaces,
    Change,
    CompileLess,
    FuseOperations,
    LaunchAtOnce,
    LoadAhead,
    LoadInParallel,
    SeveralStepsAtOnce,
    SpeedUpStage,
    TraceOnce,
    TryChange,
    UseAllCores,
    UseAllCoresInRanks,
    UseBfloat16,
    UseFewerThreads,
    UseFewerWorkers,
    UseFloat32,
)
from sonda.report.words import describe, remedies

WORDS: list[tuple[Finding, str]] = [
    (TryChange(Change.VALIDATE_LESS), "validate less often, or on fewer batches"),
    (UseAllCores(3, "torch", 1), "use all 3 cores: torch.set_num_threads(3)"),
    (UseAllCores(4, "pytensor", 2), "use all 4 cores: OMP_NUM_THREADS=2 in each of 2 processes"),
    (UseAllCores(4, "jax", 1), "use all 4 cores"),
    (UseFewerThreads(2, "torch", 8), "use no more threads than cores: torch.set_num_threads(2)"),
    (UseFewerThreads(2, "torch", 2), "let no more than 2 threads of the program compute at the same time"),
    (
        UseFewerWorkers(2, 4),
        "use fewer workers than 4, with one thread each, or fewer threads beside them: there are 2 cores",
    ),
    (
        UseFewerWorkers(2, 0),
        "use fewer processes, with one thread each, or fewer threads beside them: there are 2 cores",
    ),
    (UseAllCoresInRanks(4, 2), "use all 4 cores: cpu/2 for every rank"),
    (UseBfloat16("torch", on_gpu=True), "compute in bfloat16: torch.autocast('cuda', torch.bfloat16)"),
    (UseBfloat16("jax", on_gpu=False), "compute in bfloat16: operands as jnp.bfloat16"),
    (UseFloat32("bfloat16", 4.0), "compute in float32: products of bfloat16 are 4.0 times slower here"),
    (FuseOperations("torch", partly=False), "fuse operations: torch.compile(model)"),
    (
        FuseOperations("tensorflow", partly=True),
        "fuse operations: tf.function(jit_compile=True); so far only a part of the program is compiled",
    ),
    (LaunchAtOnce("jax"), "compile the whole step as one function: jax.jit around it"),
    (
        LaunchAtOnce("pytensor"),
        "launch the whole step at once: CUDA graphs, torch.compile(mode='reduce-overhead')",
    ),
    (SeveralStepsAtOnce("tensorflow"), "several steps in one call: Model.compile(steps_per_execution=…)"),
    (LoadAhead("jax"), "load ahead: a thread that makes the next batch"),
    (LoadInParallel("torch", 2, 0), "load data in parallel: DataLoader(num_workers=2)"),
    (LoadInParallel("PyDataset", 2, 1), "load data with more workers than 1: PyDataset(workers=2)"),
    (
        LoadInParallel("torch", 2, None),
        "load data in parallel, in processes of its own: DataLoader(num_workers=2) does",
    ),
    (
        SpeedUpStage("map and batch", "map", 1),
        "make map and batch faster, the slowest stage: call it more often at once: Dataset.map(…, "
        "num_parallel_calls=tf.data.AUTOTUNE)",
    ),
    (
        SpeedUpStage("tfrecord", "record", 2),
        "make tfrecord faster, the slowest stage: it makes 2 calls at once already; do less in it, or keep what it "
        "gives: Dataset.cache()",
    ),
    (CompileLess("torch"), "compile one block instead of the whole model, or what runs often only"),
    (AtPlaces(Remark("think"), "2 of 3 configurations"), "think (2 of 3 configurations)"),
]


@pytest.mark.parametrize(("finding", "words"), WORDS, ids=lambda case: getattr(case, "kind", ""))
def test_advice_is_said_as_it_is_typed(finding: Finding, words: str) -> None:
    assert describe(finding) == words


def traced(cause: str, framework: str = "tensorflow", where: str = "train.py:12", by_xla: bool = False) -> str:
    return describe(TraceOnce("step", where, cause, "x", framework, by_xla))


@pytest.mark.parametrize(
    ("cause", "framework", "words"),
    [
        ("shape", "jax", "give x one shape: pad to few shapes, or drop the last batch"),
        ("type", "tensorflow", "give x one type: tf.cast before the call"),
        ("type", "jax", "give x one type: astype before the call"),
        ("python", "tensorflow", "pass x as an array, not as a value of Python: tf.constant(x)"),
        ("python", "jax", "pass x as an array, not as a value of Python: leave it out of static_argnums"),
        ("object", "tensorflow", "pass the same x each time, or its tensors"),
        ("structure", "jax", "pass x always, or never"),
        ("new", "tensorflow", "make step once: tf.function outside of the loop"),
        ("new", "jax", "make step once: jax.jit outside of the loop"),
        ("other", "jax", "look at what step is called with"),
    ],
)
def test_what_keeps_a_function_from_being_traced_again_follows_from_the_cause(
    cause: str, framework: str, words: str
) -> None:
    assert traced(cause, framework) == words


def test_a_shape_is_padded_to_one_or_by_xla_to_few() -> None:
    general = "pad to one, drop the last batch, or tf.function(reduce_retracing=True) on step"
    assert traced("shape") == f"give x one shape: {general}"
    assert traced("shape", by_xla=True) == "give x one shape: pad to few shapes, or drop the last batch"


def test_a_model_that_keras_compiles_anew_has_a_remedy_of_its_own() -> None:
    assert traced("new", where="") == "compile the model once"


def test_there_are_words_for_all_that_can_be_advised() -> None:
    assert set(remedies.CHANGES) == set(Change)
    assert set(offered.HAVE_BFLOAT16) == set(remedies.BFLOAT16)
    assert set(offered.COMPILE) == set(remedies.FUSED)
    assert set(offered.RUN_SEVERAL_STEPS) == set(remedies.SEVERAL)
    assert set(offered.LOAD_AHEAD) == set(remedies.AHEAD)
    assert set(offered.LOADERS) == set(remedies.WORKERS)
    assert set(offered.STAGES) == set(remedies.STAGES)
