"""What it means: statistics, roofline, comparison, verdicts."""

DOORS = (
    "comparison.findings", "comparison.option_effects", "corun.findings", "counters.findings", "device.findings",
    "energy.findings", "ranks.findings", "simulated.findings", "traces.findings",
    "bounds", "change_points", "code.summary", "comparison.kernels", "comparison.limit", "comparison.optimisations",
    "comparison.repetitions", "comparison.runs", "comparison.scaling", "comparison.summary", "corun.interference",
    "corun.layers", "counters.callgrind", "counters.summary", "device.critical_path", "device.kernel_counters",
    "device.kernel_roofline", "device.kernels", "device.stalls", "device.timeline", "doubts", "energy.summary",
    "energy.training", "figure_names", "findings", "layer_families", "ranks.stragglers", "ranks.verdict", "reasons",
    "roofline", "rules.advice", "rules.cause_findings", "rules.code_findings", "rules.limit_findings",
    "rules.places", "run_rows",
    "run_summary", "serving", "simulated.exploration",
    "statistics", "steps.pipeline", "steps.program", "steps.training", "study_findings", "summary", "traces.operations",
    "traces.profile", "traces.step_breakdown", "traces.summary", "trials", "wording",
)  # fmt: skip
"""Modules that other rooms may import; all else is this room's own."""
