"""Words for what can be tried: clauses without a full stop."""

from __future__ import annotations

from sonda.analysis import wording
from sonda.analysis.rules.advice import (
    AllowTf32,
    AtPlaces,
    BalanceRanks,
    Change,
    ChangeLine,
    CompileLess,
    ComputeInFloat32,
    CopyLess,
    FlushDenormals,
    FusedOptimizer,
    FuseOperations,
    KeepDeviceMemory,
    LaunchAtOnce,
    LineChange,
    LoadAhead,
    LoadInParallel,
    MakeContiguous,
    NoGrad,
    OptimizerOnDevice,
    RemoveBreaks,
    ReuseBuffers,
    ReuseResult,
    SaveLess,
    SeveralStepsAtOnce,
    SmallerLayer,
    SparseUpdate,
    SpeedUpStage,
    StableShapes,
    SynchroniseLess,
    TraceOnce,
    TryChange,
    UseAllCores,
    UseAllCoresInRanks,
    UseBfloat16,
    UseFewerThreads,
    UseFewerWorkers,
    UseFloat32,
    ValidateLess,
    Vectorise,
    WorkInPlace,
)
from sonda.report.words.describe import describe
from sonda.report.words.places import at_place, name_layer

CHANGES = {
    Change.CACHE_IMAGES: "keep decoded images in memory",
    Change.CHANNELS_LAST: "store images with channels last: model.to(memory_format=torch.channels_last)",
    Change.CLOSE_PROGRAMS: "close other programs and measure again",
    Change.COMPILE_ONCE: "compile once: torch.compile(dynamic=True), or few shapes; TORCH_LOGS=recompiles says what "
    "changed",
    Change.COPY_FROM_PINNED: "copy from pinned memory only, and without waiting: tensor.to(device, non_blocking=True)",
    Change.COPY_MEANWHILE: "copy the next batch while this one is computed, on a stream of its own",
    Change.CORE_PER_THREAD: "give every thread a core of its own, not a sibling of another",
    Change.IMPORT_LATE: "import what is seldom used where it is used; python -X importtime says what each import takes",
    Change.LARGER_BATCH: "process more samples per step: a larger batch",
    Change.LARGER_BATCH_EXCHANGES_LESS: "give a larger --batch: a step exchanges as much, and computes more",
    Change.LARGER_H: "average less often, with a larger @h=",
    Change.LEAVE_OUT_DEVICES: "leave out devices that do not pay: --on hybrid=...@auto",
    Change.LOCAL_SGD: "average weights now and then instead of gradients in every step: --on localsgd=, and look at "
    "accuracy",
    Change.LOOK_AFTER_STEPS: "look at what runs after the last step: exports, pictures, processes that are waited for",
    Change.LOOK_BEFORE_STEPS: "look at what runs before the first step, and keep its result in a file",
    Change.LOOK_BETWEEN_STEPS: "look at what runs between the steps: logs, metrics, pictures; do it less often",
    Change.MEASURE_CEILINGS: "measure the machine's ceilings again while nothing else runs: sonda doctor --measure; "
    "then run again",
    Change.MORE_SAMPLES: "process more samples per step",
    Change.MORE_SAMPLES_EXCHANGE_LESS: "process more samples per step: a step exchanges as much, and computes more",
    Change.NEXT_BATCH_IN_THREAD: "make the next batch in a thread while this one computes",
    Change.PIN_AND_COPY: "pin the batches' memory and copy them without waiting: DataLoader(pin_memory=True), "
    "tensor.to(device, non_blocking=True)",
    Change.READ_IN_WORKERS: "read in workers, while this process computes: "
    "torch.utils.data.DataLoader(dataset, num_workers=2)",
    Change.RUN_AS_GRAPH: "run the step as a graph: leave out run_eagerly=True, or in a loop of your own put "
    "tf.function around the step",
    Change.RUN_LONGER: "run longer: compilation is paid once",
    Change.SAVE_LESS_OFTEN: "save less often, or in a thread beside the training",
    Change.START_ONCE: "start the program once for many runs: a process that stays, or a loop over settings inside it",
    Change.TEST_LESS: "test on fewer batches, or in larger ones",
    Change.VALIDATE_LESS: "validate less often, or on fewer batches",
}
LINE_CHANGES = {
    LineChange.COLLECT_LESS: "collect garbage less often than at {}: leave out gc.collect(), or call gc.freeze() once "
    "the objects are made that stay, and gc.set_threshold(100_000)",
    LineChange.COPY_LESS: "copy once, or not at all, at {}: keep tensors as tensors, in one dtype, and share what "
    "nobody changes",
    LineChange.FASTER_INPUT: "make {} faster: prepare whole batches at once, or keep what it prepares in memory",
    LineChange.FEWER_METRICS: "compute {} every 100 steps, or once an epoch",
    LineChange.LOG_LESS: "write at {} every 100 steps, or once an epoch, and do not flush",
    LineChange.REUSE_BUFFERS: "keep the memory of {} and write into it in every step: out=, copy_() or zero_()",
    LineChange.SAVE_LESS: "save at {} once an epoch, or in a thread beside the training",
    LineChange.VECTORISE: "vectorise {}: one operation on the whole batch in the place of the loop",
    LineChange.WAIT_LESS: "do not wait at {}: leave it out, or do it in a thread or process beside the training",
}
THREADS = {
    "torch": ": torch.set_num_threads({})",
    "tensorflow": ": tf.config.threading.set_intra_op_parallelism_threads({})",
    "pytensor": ": OMP_NUM_THREADS={}",
}
BFLOAT16 = {
    "torch": "torch.autocast('{}', torch.bfloat16)",
    "tensorflow": "keras.mixed_precision.set_global_policy('mixed_bfloat16')",
    "jax": "operands as jnp.bfloat16",
}
FUSED = {"torch": "torch.compile(model)", "tensorflow": "tf.function(jit_compile=True)"}
AT_ONCE = {
    "torch": "launch the whole step at once: CUDA graphs, torch.compile(mode='reduce-overhead')",
    "tensorflow": "compile the whole step as one function: tf.function(jit_compile=True) around it",
    "jax": "compile the whole step as one function: jax.jit around it",
}
SEVERAL = {"tensorflow": "Model.compile(steps_per_execution=…)", "jax": "jax.lax.scan over their batches"}
WORKERS = {
    "torch": "DataLoader(num_workers={})",
    "tensorflow": "Dataset.map(…, num_parallel_calls={})",
    "PyDataset": "PyDataset(workers={})",
    "generator": "keras.utils.PyDataset(workers={}) in the place of the generator",
}
STAGES = {
    "map": "call it more often at once: Dataset.map(…, num_parallel_calls=tf.data.AUTOTUNE)",
    "interleave": "read more files at once: Dataset.interleave(…, num_parallel_calls=tf.data.AUTOTUNE)",
    "generator": "a generator gives one element at a time: do its work in Dataset.map(…, num_parallel_calls=…)",
    "record": "read several files at once: Dataset.interleave(…, num_parallel_calls=tf.data.AUTOTUNE)",
}
AHEAD = {"tensorflow": "Dataset.prefetch(2)", "jax": "a thread that makes the next batch"}
COMPILED = {
    "torch": "compile one block instead of the whole model, or what runs often only",
    "jax": "keep compiled functions on disk: jax.config.update('jax_compilation_cache_dir', …)",
    "tensorflow": "compile what runs often only, and give it one shape",
    "pytensor": "keep the compilation cache between runs, or compile with mode='FAST_COMPILE'",
}


@describe.register
def _(finding: TryChange) -> str:
    return CHANGES[finding.change]


@describe.register
def _(finding: ChangeLine) -> str:
    place = finding.place
    line = f"{place.file.rpartition('/')[2]}:{place.line}"
    return LINE_CHANGES[finding.change].format(line)


@describe.register
def _(finding: UseAllCores) -> str:
    how = THREADS.get(finding.framework, "").format(finding.cores // finding.processes)
    everywhere = f" in each of {finding.processes} processes" if finding.processes > 1 else ""
    return f"use all {finding.cores} cores{how}{everywhere}"


@describe.register
def _(finding: UseFewerThreads) -> str:
    if finding.threads <= finding.cores:
        return f"let no more than {wording.plural(finding.cores, 'thread')} of the program compute at the same time"
    return f"use no more threads than cores{THREADS.get(finding.framework, '').format(finding.cores)}"


@describe.register
def _(finding: UseFewerWorkers) -> str:
    which = f"fewer workers than {finding.workers}" if finding.workers else "fewer processes"
    return f"use {which}, with one thread each, or fewer threads beside them: there are {finding.cores} cores"


@describe.register
def _(finding: UseAllCoresInRanks) -> str:
    return f"use all {finding.cores} cores: cpu/{finding.threads} for every rank"


@describe.register
def _(finding: UseBfloat16) -> str:
    return f"compute in bfloat16: {BFLOAT16[finding.framework].format('cuda' if finding.on_gpu else 'cpu')}"


@describe.register
def _(finding: UseFloat32) -> str:
    return f"compute in float32: products of {finding.instead_of} are {wording.times(finding.times)} slower here"


@describe.register
def _(finding: FuseOperations) -> str:
    partly = "; so far only a part of the program is compiled" if finding.partly else ""
    return f"fuse operations: {FUSED[finding.framework]}{partly}"


@describe.register
def _(finding: LaunchAtOnce) -> str:
    return AT_ONCE.get(finding.framework, AT_ONCE["torch"])


@describe.register
def _(finding: SeveralStepsAtOnce) -> str:
    return f"several steps in one call: {SEVERAL[finding.framework]}"


@describe.register
def _(finding: LoadAhead) -> str:
    return f"load ahead: {AHEAD[finding.framework]}"


@describe.register
def _(finding: LoadInParallel) -> str:
    how = WORKERS[finding.loader].format(finding.workers)
    if finding.used is None:
        return f"load data in parallel, in processes of its own: {how} does"
    more = f"with more workers than {finding.used}" if finding.used else "in parallel"
    return f"load data {more}: {how}"


@describe.register
def _(finding: SpeedUpStage) -> str:
    how = STAGES[finding.does]
    if finding.parallel > 1:
        how = (
            f"it makes {finding.parallel} calls at once already; do less in it, or keep what it gives: Dataset.cache()"
        )
    return f"make {finding.stage} faster, the slowest stage: {how}"


@describe.register
def _(finding: CompileLess) -> str:
    return COMPILED.get(finding.framework, COMPILED["torch"])


@describe.register
def _(finding: TraceOnce) -> str:
    in_jax = finding.framework == "jax"
    argument = finding.argument or "it"
    name = finding.function
    if finding.cause == "shape":
        how = (
            "pad to few shapes, or drop the last batch" if in_jax or finding.by_xla
            else f"pad to one, drop the last batch, or tf.function(reduce_retracing=True) on {name}"
        )  # fmt: skip
        return f"give {argument} one shape: {how}"
    if finding.cause == "type":
        return f"give {argument} one type: {'astype' if in_jax else 'tf.cast'} before the call"
    if finding.cause == "python":
        how = "leave it out of static_argnums" if in_jax else f"tf.constant({argument})"
        return f"pass {argument} as an array, not as a value of Python: {how}"
    if finding.cause == "object":
        return f"pass the same {argument} each time, or its tensors"
    if finding.cause == "structure":
        return f"pass {argument} always, or never"
    if finding.cause == "new":
        maker = "jax.jit" if in_jax else "tf.function"
        return f"make {name} once: {maker} outside of the loop" if finding.where else "compile the model once"
    return f"look at what {name} is called with"


@describe.register
def _(finding: NoGrad) -> str:
    if not finding.freezes:
        return f"compute without gradients: with torch.no_grad(){at_place(finding.place)}"
    if finding.sometimes:
        return (
            f"keep gradients out of {name_layer(finding.freezes[0])} where they are not used: detach() what comes from "
            "it, or requires_grad_(False) for that backward"
        )
    weights = wording.join([f"{path or 'model'}.requires_grad_(False)" for path in finding.freezes[:2]])
    return f"freeze what is not trained: {weights}"


@describe.register
def _(finding: ReuseResult) -> str:
    return f"keep the first result and use it again{at_place(finding.place, layer=False)}"


@describe.register
def _(finding: Vectorise) -> str:
    return f"compute all rounds of the loop at once, on one larger tensor{at_place(finding.place)}"


@describe.register
def _(finding: SparseUpdate) -> str:
    return (
        f"update the rows that have gradients only: {finding.place.layer or 'table'} = nn.Embedding(…, sparse=True), "
        "with torch.optim.SparseAdam or SGD"
    )


@describe.register
def _(finding: FusedOptimizer) -> str:
    if finding.own:
        return (
            f"update all weights in one pass: torch.optim with fused=True, or torch._foreach_ operations in "
            f"{finding.optimizer or 'your update'}"
        )
    return f"update all weights in one pass: torch.optim.{finding.optimizer}(…, fused=True)"


@describe.register
def _(finding: BalanceRanks) -> str:
    if finding.stages:
        return "give every stage as much work: move layers from the slowest one to its neighbours"
    return "give every rank as much work: share samples out by what they cost, not by their number"


@describe.register
def _(finding: OptimizerOnDevice) -> str:
    return "move the model to its device before the optimizer is made, and give it those weights"


@describe.register
def _(finding: ComputeInFloat32) -> str:
    return f"compute in float32: model.float(), and input as torch.float32{at_place(finding.place)}"


@describe.register
def _(finding: SmallerLayer) -> str:
    how = "a smaller kernel, or several of 3" if finding.kernel else "pool before it, or put a narrower layer between"
    return f"make {name_layer(finding.place.layer)} smaller: {how}"


@describe.register
def _(finding: CopyLess) -> str:
    return f"leave out clone(), contiguous() and conversions that nothing needs{at_place(finding.place)}"


@describe.register
def _(finding: MakeContiguous) -> str:
    return f"make the tensor contiguous once, before it is used often{at_place(finding.place)}"


@describe.register
def _(finding: WorkInPlace) -> str:
    return f"work in place, or with out=, so that less is moved{at_place(finding.place)}"


@describe.register
def _(finding: FlushDenormals) -> str:
    return "take subnormal numbers for zero: torch.set_flush_denormal(True)"


@describe.register
def _(finding: ValidateLess) -> str:
    return f"validate less often, or on fewer batches{at_place(finding.place)}"


@describe.register
def _(finding: SaveLess) -> str:
    return f"save less often, or in a thread beside the training{at_place(finding.place)}"


@describe.register
def _(finding: ReuseBuffers) -> str:
    return f"keep large buffers and write into them: out=, copy_() or in-place operations{at_place(finding.place)}"


@describe.register
def _(finding: KeepDeviceMemory) -> str:
    return f"leave out torch.cuda.empty_cache(){at_place(finding.place)}: PyTorch keeps memory for the next step"


@describe.register
def _(finding: SynchroniseLess) -> str:
    return (
        f"ask the GPU less often{at_place(finding.place)}: keep numbers as tensors there, add them up, and fetch them "
        "once in many steps"
    )


@describe.register
def _(finding: AllowTf32) -> str:
    return 'allow TF32 in products: torch.set_float32_matmul_precision("high"), and look at accuracy'


@describe.register
def _(finding: StableShapes) -> str:
    return f"give the compiled function one shape, by padding or by dropping the last batch{at_place(finding.place)}"


@describe.register
def _(finding: RemoveBreaks) -> str:
    return f"keep print(), item() and foreign calls out of the compiled function{at_place(finding.place)}"


@describe.register
def _(finding: AtPlaces) -> str:
    return f"{describe(finding.advice)} ({finding.places})"
