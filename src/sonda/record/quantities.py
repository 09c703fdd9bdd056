"""Quantities, units and sources: the vocabulary of every number Sonda keeps."""

from __future__ import annotations

from dataclasses import dataclass

SOURCES = {
    "measured": "a clock or sensor",
    "counted": "a counter of hardware, kernel or allocator",
    "nominal": "from the algorithm's formula",
    "simulated": "an accelerator model",
    "modelled": "an emulator",
    "derived": "arithmetic on other metrics",
    "estimated": "a guess with bounds",
    "published": "somebody's printed figure",
}


def check_source(source: str) -> None:
    """Raise ValueError for what is no source of a number."""
    if source not in SOURCES:
        raise ValueError(f"unknown source {source!r}, known: {', '.join(SOURCES)}")


@dataclass(frozen=True)
class Quantity:
    """What a number counts, and in which unit."""

    name: str
    unit: str
    meaning: str


CYCLE_STACK = ("distribution", "compute", "reduction", "writeback", "configuration")
"""What cycles of an accelerator are spent on, in the order in which an operation walks through it; `memory` is a
further part where the global buffer is finite."""
STALLS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected",
    "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
"""What a warp of a GPU waits for, as Nsight Compute names it; `selected` is the warp that issues."""
TENSOR = ("fp64", "tf32", "bf16", "fp16", "fp8", "fp6", "fp4")
"""What tensor cores multiply. Some chips count fp4 and fp6 with fp8, or fp4 with fp6: the widest gives the name."""
ROOFS = ("dram", "l2", "flops")
"""What a kernel can be at the peak of: bytes of memory, bytes of the L2 cache, FLOPs of the precision it uses most."""

INPUT_SIZES = ("input_size_1", "input_size_2", "input_size_3")
"""Sizes of a step's input that differ from step to step, such as a batch's and a text's; at most so many are told. Of a
step with several forwards their sum."""
INPUT_PRODUCTS: dict[tuple[int, ...], str] = {
    powers: "input_size_" + "x".join(str(size + 1) for size in powers)
    for powers in (
        (0,), (1,), (2,), (0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2), (0, 0, 1), (0, 1, 1), (0, 1, 2),
    )
}  # fmt: skip
"""By the numbers of the sizes, what they are multiplied to in each forward, summed over the forwards of a step. Where
each step has one forward, only the sizes themselves are kept."""
INPUT_CALLS = ("input_calls_1", "input_calls_2", "input_calls_3")
"""How often a step calls its modules, where that differs from step to step."""

QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("flops", "FLOP", "floating-point operations; a multiply-add is two"),
        Quantity(
            "executed_flops",
            "FLOP",
            "FLOPs of a convolution without its products with padding, which libraries can skip; where these are fewer",
        ),
        Quantity("bytes", "B", "bytes moved if every distinct input is read once and every output written once"),
        Quantity("loss", "1", "mean of the loss over the samples of a walk through a share of the data"),
        Quantity("accuracy", "1", "share of a walk's samples that were told right"),
        Quantity("loading", "ns", "opening a data set and, where asked, moving it to the device, before training"),
        Quantity("initialisation", "ns", "making a model ready before training: weights, device, calibration"),
        Quantity("peak_memory", "B", "highest sum of live tensors"),
        Quantity("activations", "B", "memory first taken in this layer's forward and still held when forward ended"),
        Quantity("resident_memory", "B", "resident memory of the process"),
        Quantity("page_faults", "1", "page faults of all threads of the process"),
        Quantity("context_switches", "1", "context switches of all threads of the process"),
        Quantity("cpu_time", "ns", "user and system time of all threads of the process"),
        Quantity("instructions", "1", "instructions executed"),
        Quantity("loads", "1", "loads from memory, by instruction"),
        Quantity("stores", "1", "stores to memory, by instruction"),
        Quantity("l1i_misses", "1", "instruction fetches that miss the first level of cache"),
        Quantity("l1d_load_misses", "1", "loads that miss the first level of cache"),
        Quantity("l1d_store_misses", "1", "stores that miss the first level of cache"),
        Quantity("ll_instruction_misses", "1", "instruction fetches that miss the last level of cache"),
        Quantity("ll_load_misses", "1", "loads that miss the last level of cache"),
        Quantity("ll_store_misses", "1", "stores that miss the last level of cache"),
        Quantity("branches", "1", "conditional branches"),
        Quantity("branch_misses", "1", "conditional branches that went the way that was not foreseen"),
        Quantity("indirect_branches", "1", "jumps and calls to an address in a register or in memory"),
        Quantity("indirect_misses", "1", "indirect branches to an address that was not foreseen"),
        Quantity("task_clock", "ns", "time that all threads of the process ran on a processor"),
        Quantity("cpu_migrations", "1", "moves of threads of the process to another processor"),
        Quantity(
            "run_queue_wait", "ns", "time that threads of the process were ready to run and waited for a processor"
        ),
        Quantity("counter_enabled", "ns", "time that a group of counters was asked to count, of all threads"),
        Quantity("counter_running", "ns", "time that it really counted; where that is less, counts are estimated"),
        Quantity("communication", "ns", "time that a layer or phase spent exchanging with other ranks"),
        Quantity("collections", "1", "garbage collections of the process while a step lasted"),
        Quantity("collection_time", "ns", "time that these collections took"),
        Quantity("operations", "1", "framework operations dispatched"),
        Quantity("tokens", "1", "tokens produced or consumed"),
        *(Quantity(name, "1", "a size of a step's input that differs between steps") for name in INPUT_SIZES),
        *(
            Quantity(name, "1", "a product of such sizes, summed over the forwards of a step")
            for name in INPUT_PRODUCTS.values()
            if name not in INPUT_SIZES
        ),
        *(Quantity(name, "1", "forwards of a step, where their number differs between steps") for name in INPUT_CALLS),
        Quantity("samples", "1", "samples processed: by a step, a query, or a walk through a share of the data"),
        Quantity("queue_wait", "ns", "time from a query's planned arrival to the beginning of its inference"),
        Quantity("inference_queries", "1", "queries that were answered by the same inference as this one"),
        Quantity("energy", "J", "energy"),
        Quantity(
            "energy_low",
            "J",
            "the least that the energy may be: by readings of a sensor, or by the bounds of an energy table",
        ),
        Quantity(
            "energy_high",
            "J",
            "the most that the energy may be: by readings of a sensor, or by the bounds of an energy table",
        ),
        Quantity("cycles", "cycle", "clock cycles"),
        Quantity("distribution_cycles", "cycle", "cycles spent bringing operands to the multipliers"),
        Quantity("compute_cycles", "cycle", "cycles spent multiplying"),
        Quantity("reduction_cycles", "cycle", "cycles spent adding up products"),
        Quantity("writeback_cycles", "cycle", "cycles spent writing results back"),
        Quantity("configuration_cycles", "cycle", "cycles spent setting up an engine"),
        Quantity("memory_cycles", "cycle", "cycles in which an engine waits for the memory behind the global buffer"),
        Quantity("dram_read_bytes", "B", "bytes read from the memory behind the global buffer, in whole bursts"),
        Quantity("dram_write_bytes", "B", "bytes written to the memory behind the global buffer, in whole bursts"),
        Quantity("dram_wanted_bytes", "B", "bytes of these that an engine wanted or left"),
        Quantity("row_hits", "1", "accesses of the memory that find its row open"),
        Quantity("row_misses", "1", "accesses of the memory that open another row"),
        Quantity("cold_misses", "1", "rows of embedding tables that come into the global buffer for the first time"),
        Quantity("capacity_misses", "1", "rows of embedding tables that had to leave the global buffer and come again"),
        Quantity("buffer_reads", "1", "elements read from the global buffer"),
        Quantity("buffer_writes", "1", "elements written to the global buffer"),
        Quantity("multiplications", "1", "products that operations ask for, without those that only fill a tile up"),
        Quantity("device_time", "ns", "time on the device's clock from reaching a phase's begin to reaching its end"),
        Quantity("device_start", "ns", "when a phase began on its device, by the host's clock since the run began"),
        Quantity("device_busy", "ns", "time in which a device did something of a phase or step"),
        Quantity("device_allocated", "B", "most memory of a device that tensors held"),
        Quantity("device_reserved", "B", "most memory of a device that the framework held"),
        Quantity("launch_latency", "ns", "time from the call that launches an activity of a device to its beginning"),
        Quantity(
            "event_age", "ns", "time from the call that records an event of a device to the call that waits for it"
        ),
        Quantity("sequence", "1", "which of its group of ranks' collectives this is"),
        Quantity("flops_single", "FLOP", "single-precision FLOPs outside tensor cores"),
        Quantity("flops_double", "FLOP", "double-precision FLOPs outside tensor cores"),
        Quantity("flops_half", "FLOP", "half-precision FLOPs outside tensor cores"),
        Quantity("flops_tensor", "FLOP", "FLOPs on tensor cores"),
        *(Quantity(f"flops_tensor_{kind}", "FLOP", f"FLOPs on tensor cores that multiply {kind}") for kind in TENSOR),
        Quantity("integer_tensor", "1", "integer operations on tensor cores, which are no FLOPs"),
        *(
            Quantity(f"{name}_roof", "1", f"share of the device's own peak while a kernel ran: {name}")
            for name in ROOFS
        ),
        Quantity("special_functions", "1", "instructions of a GPU's special functions, by thread, and conversions"),
        Quantity("dram_bytes", "B", "bytes read from and written to a device's memory"),
        Quantity("l2_bytes", "B", "bytes that pass a GPU's L2 cache"),
        Quantity("l1_bytes", "B", "bytes that pass a GPU's L1 caches"),
        Quantity("sm_clock", "Hz", "clock of a GPU's multiprocessors while a kernel ran"),
        *(Quantity(f"stall_{reason}", "%", f"share of resident warps' cycles: {reason}") for reason in STALLS),
        Quantity("multiplier_cycles", "1", "multipliers times cycles: the products that could have been computed"),
    )
}

LEVELS = frozenset(
    {
        "resident_memory",
        "peak_memory",
        "device_allocated",
        "device_reserved",
        "sm_clock",
        "sequence",
        *(f"stall_{reason}" for reason in STALLS),
        *(f"{name}_roof" for name in ROOFS),
    }
)
"""Quantities that stand at a height: a step has their highest value. All others add up."""


@dataclass(frozen=True)
class Metric:
    """A quantity together with where its values come from; `str()` is the column's name."""

    quantity: str
    source: str

    def __post_init__(self) -> None:
        if not self.quantity:
            raise ValueError("a metric needs a quantity")
        check_source(self.source)

    @property
    def unit(self) -> str:
        known = QUANTITIES.get(self.quantity)
        return known.unit if known else "1"

    def __str__(self) -> str:
        return f"{self.quantity}:{self.source}"

    @classmethod
    def parse(cls, column: str) -> Metric:
        """`Metric.parse("flops:nominal")`; raises ValueError for a name that is not `quantity:source`."""
        quantity, colon, source = column.partition(":")
        if not colon:
            raise ValueError(f"{column!r} is not quantity:source")
        return cls(quantity, source)
