"""Why a number is missing, or has no interval: the one place where analysis and studies put that into words.

A reason is text, because most values take it over from another value, from a probe or from the record, and documents
keep it. Code that must tell reasons apart compares with a name of this module, never with a sentence. `{}` stands for
names and numbers, which `str.format` fills in.
"""

from __future__ import annotations

NOTHING_TO_DIVIDE_BY = "nothing to divide by"
NOT_MEASURED_YET = "not measured yet"
BASE_NOT_MEASURED_YET = "the base is not measured yet"
NOT_COUNTED = "not counted"
NO_STEP_SEEN = "no step was seen"
NO_STEP_TIMED = "no step was timed"
NO_STEP_HELD = "the run holds no step"
AMOUNT_UNKNOWN = "it is not known how many {} a step processes"
NO_TIME = "it took no time"
LONGER_THAN_STEP = "it takes longer than the step it is a part of: they are medians of different steps"

# ---- Operations, layers and phases -----------------------------------------------------------------------------------

NO_BYTE_MOVED = "no byte is moved"
NO_STEP_COUNTED = "no step was counted"
OTHER_SHAPE_COUNTED = "no step with the most frequent input shape was counted"
ONLY_COUNTED = "only counted steps were seen, and counting disturbs their times"
NO_OPERATION_COUNTED = "no operation was counted"
NO_OPERATION_HERE = "no operation was counted here"
NO_FORMULA = "no formula for these operations"
COMPUTING_WITHOUT_FORMULA = "no formula for {:.0f} of {:.0f} operations, all that compute"
LOWER_BOUND = "a lower bound: no formula for {:.0f} of {:.0f} operations"
NO_MEMORY_IN_PHASE = "no tensor memory was counted in this phase"
NO_MEMORY_IN_LAYER = "no tensor memory was counted in this layer"
LAYER_NOT_CALLED = "this layer was not called in the counted step"
NO_BACKWARD = "no backward was seen"
SELDOM_READ = "read in {} of {} steps: the phase is too short to read counters each time"
NO_LAUNCHES = "the trace holds no launches"
NOTHING_COUNTED = "nothing was counted"
NOTHING_COMPUTES = "nothing computes"

# ---- Ceilings --------------------------------------------------------------------------------------------------------

ABOVE_ROOF = "it ran faster than the ceilings measured on this machine allow: they are too low, or the counts too high"
NO_BANDWIDTH = "no memory bandwidth was measured"
NO_PEAK_OF = "no peak was measured for {}"
NO_CEILINGS_ON = "no ceilings were measured on {}"
NO_CEILINGS_WITH = "no ceilings were measured with {}"
CEILINGS_DISTURBED = (
    "other programs ran while the {}'s ceilings were measured; stop them and run again, which measures them anew"
)
SLOW_CACHE = (
    "the {}'s last-level cache was measured to be slower than its memory, so other programs ran meanwhile; stop them "
    "and measure again: sonda doctor --measure"
)
CEILINGS_NOT_MEASURED = "the {}'s ceilings were not measured"
CORUN_HAS_NO_ROOF = "a co-run has no roofline"
SERVING_HAS_NO_ROOF = "served traffic has no roofline"
EXPLORATION_HAS_NO_ROOF = "an exploration has no roofline"
IMPORT_HAS_NO_ROOF = "an imported run has no machine to measure"
SIMULATED_HAS_NO_ROOF = "a simulated accelerator has no measured ceilings"

# ---- Kernels of a device ---------------------------------------------------------------------------------------------

NO_DEVICE = "the profile has no device"
NO_PEAK = "no peak was measured for this precision"
NO_THEORY = "the theoretical peak of this precision is not known"
ABOVE_THEORY = "it computes more than its maker's peak: FLOPs or precision are not what they seem"
ABOVE_OWN_PEAK = "the device counted more than its own peak: its clock changed while the kernel ran"
PEAKS_NOT_ASKED = "the device's peaks were not asked for"
NO_FLOPS_IN_KERNEL = "no FLOPs were counted in this kernel"
NO_OPERATION_OF_IT = "no operation of it was counted"
NO_FLOPS_IN_FORMULAS = "its formulas have no FLOPs"
SOME_NOT_COUNTED = "{:,} of {:,} {} were not counted"
SOME_WITHOUT_FORMULA = "{:,} of {} without a formula"
NO_CEILING_OF_COUNTED = "nothing that was counted has a measured ceiling"

# ---- Counters of the processor ---------------------------------------------------------------------------------------

NO_SHARE_OF_SLOTS = "its events give no share of the slots: they were counted at different times"
NOTHING_COUNTED_HERE = "nothing was counted here"
EVENT_NOT_COUNTED = "{} was not counted"
NOT_COUNTED_HERE = "not counted here"
NOT_COUNTED_MEANWHILE = "not counted meanwhile"
NOT_COUNTED_IN_STEPS = "not counted in any step"
CYCLES_APART = "cycles and instructions were not counted together"
INSTRUCTIONS_APART = "instructions were not counted with it"
NOT_TIMED_NATIVELY = "not timed natively"
NOTHING_EXECUTED = "nothing was executed"
NOT_ASKED_FOR = "not asked for"
OURS_IS_ZERO = "ours is 0"

# ---- Energy ----------------------------------------------------------------------------------------------------------

NO_COUNTER = "no counter"
NO_COUNTER_BELIEVED = "no counter could be believed"
NO_COUNTER_IN_USE = "no device in use has a counter"
COUNTER_READ_IN_PART = "the counter was not read all of that time"
IDLE_NOT_MEASURED = "idle power was not measured"
NO_TIME_PASSED = "no time passed"
NO_ENERGY_READ = "no energy was read"
NOTHING_READ = "nothing was read"
NOTHING_OF_SOURCE = "nothing {}"
ON_NODE = "node {}: {}"
WITHOUT = "without {}"
POWER_SAMPLED = "its power was sampled, which says nothing of what lies between two samples"
GPU_TIME_UNKNOWN = "when the GPU worked on it is not known"
SOURCES_MIXED = "devices that trained are estimated and others measured, which is never added"
PHASES_TOO_SHORT = "all phases are too short against the updates of the counter"
PHASE_TOO_SHORT = "too short against the updates of the counter"
NO_INTERVAL_IN_STEPS = "no interval between two readings lies within the steps"
SHORTER_THAN_READINGS = "{} long, and energy is known every {}"
BETWEEN_READINGS = "shorter than the time between readings; {}"
FEW_INTERVALS = "{} intervals between readings are too few to tell {} phases apart"
TOO_UNSURE = "{:.2g} ± {:.2g} J: run longer, or read more often"
TOO_SHORT_TO_READ = "{:.2g} s are too short for counters that are read every {:.2g} s"
TRAFFIC_TOO_SHORT = "the traffic was shorter than the time between two readings"
ENERGY_NOT_ASKED = "not asked for: --probe energy"

# ---- Training and serving --------------------------------------------------------------------------------------------

NOTHING_VALIDATED = "nothing was validated"
NOTHING_TESTED = "nothing was tested"
SAMPLES_UNKNOWN = "how many samples there were is not known: no interval"
LOSS_DIVERGED = "the loss was no finite number"
BUSY_LONGER = "its inferences took longer than the traffic: several ran at once"
ONLY_SERVER_HAS_RATE = "only queries of the scenario server arrive at a rate"
QUERIES_NEEDED = "{:,} queries more are needed"

# ---- Comparisons -----------------------------------------------------------------------------------------------------

SIDE_TOOK_NO_TIME = "a side took no time"
ONE_LAUNCH = "a side has one launch: no spread to judge by"
ONE_STEP = "one step on a side has no variation to judge by"
ONE_REPETITION = "one repetition has no interval"
ONE_MEASUREMENT = "one measurement each has no interval"
NOTHING_TO_DIVIDE = "nothing to divide"
NO_STEPS_IN_TRACES = "no steps in the traces"
NO_MORE_DEVICES = "there are no more devices than in the base"
SLOWER_THAN_BASE = "it is slower than the base, which no serial part explains"
FASTER_THAN_DEVICES = "{:.2f} times as fast is more than as many devices like the base's can bring"
FASTER_THAN_MORE_DEVICES = "{:.2f} times as fast is more than {:.3g} times as many devices like the base's can bring"
BEYOND_BOUND = (
    "{:.2f} times as fast was measured, beyond this bound of {:.2f}: its validation and test are shared "
    "too, or its devices are unlike the base's"
)
MORE_THAN_WAITING = "{:.2f}x was measured, and waiting for data leaves room for {} at the most"

# ---- Programs side by side -------------------------------------------------------------------------------------------

NO_NEIGHBOUR = "a program alone has no neighbour"
NOT_IN_EXPERIMENT = "not measured in this experiment"
NO_PROGRESS = "without a PMU nobody counts what a command does in a window: only what it does to others is known"
FASTER_TOGETHER = "programs were faster together than alone, so something disturbed them alone"
LOOK_FASTER_TOGETHER = "programs look faster together than alone: {}"
FEW_REPETITIONS = "too few repetitions for an interval"
NO_SPREAD = "all pieces were measured alike: no interval"
NO_TIME_SPENT = "no time was spent in it"
COMMAND_HAS_NO_STEPS = "the command has no steps"
WAITING_UNKNOWN = "the kernel keeps no account of waiting"
WAITING_OF_COMMAND = "waiting is not known of a command's processes"
COUNTER_REFUSED = "the kernel refused to count"
HAD_NO_COUNTER = "it had no counter"
NO_COUNTER_TOLD = "no counter gave a number"

# ---- Simulated accelerators ------------------------------------------------------------------------------------------

BUFFER_UNLIMITED = "the global buffer is unlimited, so no memory is behind it"
ACTIVATIONS_NOT_SIMULATED = "memory of activations is not simulated"
NO_ENERGY_HELD = "the run holds no energy"
ON_HOST = "it runs on the host"
PARTLY_ON_HOST = "some operations run on the host, whose time is not simulated"
HOST_LISTED_BY_NAME = "operations of the host are listed by name"
ONLY_INFERENCE = "only inference is simulated"
MEMORY_NOT_ACCESSED = "it did not access memory"
MORE_PRODUCTS = "more products than its multipliers can compute in its cycles"
OTHER_VERSION = "another version of Sonda kept the run, without it"
NO_CLOCK = "the description of {} gives no clock"

# ---- Figures of studies ----------------------------------------------------------------------------------------------

NO_STEPS = "the run has no steps"
NO_METRIC = "the run has no {}"
NO_PHASE = "its steps have no {}"
NOT_SIDE_BY_SIDE = "it is not kept of programs side by side"
WHOLE_STEP = "it is of the whole step"
NO_MODULE = "the model has no such module"
NO_PHASE_HAS_ROOF = "no phase has a roof"
NO_MEMORY = "memory was not counted"
WERE_NOT_COUNTED = "{} were not counted"
NO_PEAK_AT_ALL = "no peak was measured"
PEAK_UNKNOWN = "the {} peak of this device is not known"
ABOVE_PEAK = "it computes more than the peak that was measured: sonda doctor --measure measures it again"
KERNELS_ABOVE_PEAK = (
    "its kernels compute more than the peak that was measured: sonda doctor --measure measures it again"
)
KERNELS_ABOVE_THEORY = "its kernels compute more than the maker's peak: FLOPs or precision are not what they seem"
ABOVE_MEMORY = "it moves more than memory can: operands or result stay in a cache"
MORE_THAN_ALL = "it would be more than all of it: one of its numbers is wrong"
NOT_MEASURED = "not measured: {}"
NOT_APPLICABLE = "not applicable: {}"
NODES_WITHOUT_GPU = "nodes of this kind have no GPU"
REPETITION_FAILED = "repetition {}: {}"
ENERGY_RUN_FAILED = "energy run {}: {}"
RANGE_PRINTED = "a range was printed"
NO_ENERGY_RUNS = "it has no energy runs"
NO_SUCH_CONFIGURATION = "{!r} has no configuration like this one"

# ---- Figures of studies: processor and GPU ---------------------------------------------------------------------------

ONLY_PROCESSOR = "the processor is the only device"
ONLY_GPU = "on a GPU its kernels are shown"
KERNELS_NOT_RECORDED = "no kernels were recorded"
KERNELS_SILENT = "no kernels were recorded: {}"
NO_KERNEL_RECORDED = "no kernel was recorded"
NO_GPU = "only runs on a GPU have kernels"
NO_NCU = 'it needs a GPU and Nsight Compute: probe = "ncu"'
NO_STALLS = 'stalls of this kernel were not asked for: probe = "ncu:stalls"'
KERNELS_TOOK_NO_TIME = "its kernels took no time"
NO_DATA = "its steps have no data"
NO_PHASES = "its steps have no phases"
ALL_IN_PHASES = "phases cover the whole step"
NOTHING_WORKED_ON = "nothing was worked on"
NO_PMU = 'it needs a PMU: probe = "pmu"'
PHASES_TOO_SHORT_TO_COUNT = "its phases are too short for counters to cover the step"
PHASES_ONLY = "the system counts phases, not layers"
IT_WAS_NOT_COUNTED = "it was not counted"
NOT_COUNTED_THERE = "it was not counted there"
NO_SERIES = "there is no series of {}"
NO_CATEGORY = "{} has no {}"
NOT_MODELLED = 'no step was modelled: probe = "callgrind"'
NO_CACHE_SIMULATED = 'no last-level cache of {0} was simulated: probe = "callgrind:{0}"'

# ---- Figures of studies: devices and programs together ---------------------------------------------------------------

NOBODY_TO_SHARE = "one device has nobody to share with"
ONLY_DEVICE_KNOWS = "only the device knows how long its steps took"
FORETELLS_NOTHING = "{} foretells nothing"
NOT_FORETOLD = "{} does not foretell it"
RANK_DID_NOT_TRAIN = "rank {} did not train"
NOT_TOGETHER = "the workload ran alone"
NO_PARTITION = "no partition was asked for"
NO_WAYS = "no partition with {} ways was measured"
NO_PHASE_BY_ITSELF = "{} has no phase {!r} by itself"
OF_ALL_PROGRAMS = "it is of all programs together, not of {}"
NOT_COUNTED_IN_EXPERIMENT = "not counted in this experiment"

# ---- Figures of studies: training, serving and simulation ------------------------------------------------------------

NO_BASE = "the study names no base"
OTHER_WORK = "it does other work than the base ({})"
NO_EPOCHS = "the run has no epochs: epochs = N trains through a data set"
ONE_WITHOUT_EPOCHS = "only one of the two trained by epochs"
ONE_ESTIMATED = "one of the two is estimated"
ABOVE_DEVICES = (
    "{:.2f} times as fast was measured where its devices allow {:.2f} at most: the base, or what they "
    "were measured to do alone, was disturbed"
)
ENERGY_NOT_READ = 'energy was not read: protocol = "energy-interleaved", or probe = "energy"'
NO_ACCURACY_NAMED = "say which accuracy, in percent: time_to_accuracy_s@80"
ACCURACY_NOT_REACHED = "at most {:.1f} % was reached, not {} %"
NO_TRAINED_FIGURE = "the training has no {}"
NO_EPOCH = "there is no epoch {}"
NO_ENERGY_OF = "no energy of {} was read"
NOT_SERVED = 'the workload was not served: scenario = "server"'
NO_LOADGEN = 'LoadGen did not make the traffic: backend = "loadgen"'
NO_LOADGEN_RATE = "LoadGen's log has no rate for this scenario"
NO_LOADGEN_PERCENTILE = "LoadGen's log has no {}th percentile"
NO_LATENCY_BOUND = "no latency bound was given"
BOUND_NOT_HELD = "the bound was not shown to hold at this rate"
FEW_QUERIES = "too few queries to show it: {:,} more are needed"
NO_PERCENTILE = "the {}th percentile is not kept; there are {}"
IS_NO_PERCENTILE = "{} is no percentile"
OF_ALL_QUERIES = "it is of all queries, not of {}"
NOT_SIMULATED = "only simulated runs have it"
BUFFER_IS_UNLIMITED = "the global buffer is unlimited"
NOTHING_MULTIPLIED = "nothing was multiplied"
NOTHING_ON_ENGINE = "nothing of {} ran on an engine"
NO_MODULE_NAMED = "the model has no module {!r}"
NO_CYCLES_ON = "the accelerator spends no cycles on {}"
NO_TIME_SAMPLED = "no time was sampled"
