"""How PyTorch, TensorFlow, JAX and PyTensor are observed, driven and profiled, and how spans are made of what was seen.

Each framework is a folder with the same entries:

* `observe/observer.py`: `observe_FRAMEWORK(package, settings, counting)` begins to observe a program that imported it;
* `drive/steps.py`: `drive_…(task, observer, …, how)` runs the passes of a built-in workload;
* `profile/operations.py`: `write_profile`, `place_of` and `time_by_place` read the framework's own profile, where it
  tells what a compiled step spends on its layers.

`collector` and the folder `observe` of each framework travel into observed programs.
"""

from pathlib import Path

INJECT = Path(__file__).parent / "inject"
"""The one folder on an observed program's PYTHONPATH."""

DOORS = (
    "collector.callgrind", "collector.clock", "collector.corun.board", "collector.corun.counters",
    "collector.corun.participation", "collector.corun.window",
    "collector.counters.perf_event", "collector.counters.process", "collector.counters.system", "collector.phases",
    "collector.recorder", "collector.sampling.schedule", "collector.start", "harness.announcer", "harness.attribution",
    "harness.batches", "harness.checkpoint", "harness.counted_step", "harness.course", "harness.epochs",
    "harness.settings", "jax.drive.steps", "jax.profile.cuda_graphs", "jax.profile.hlo", "jax.profile.hlo_cost",
    "jax.profile.operations", "jax.profile.places", "pytensor.drive.steps", "pytensor.observe.linkers",
    "reconstruction.assembly", "reconstruction.events", "reconstruction.phases", "reconstruction.processes",
    "tensorflow.drive.steps", "tensorflow.drive.strategies", "tensorflow.profile.operations", "torch.drive.determinism",
    "torch.drive.epochs", "torch.drive.learner", "torch.drive.state", "torch.drive.steps", "torch.observe.observer",
    "torch.observe.process", "torch.parallel.balance", "torch.parallel.batchnorm", "torch.parallel.calibration",
    "torch.parallel.chain", "torch.parallel.gradients", "torch.parallel.group", "torch.parallel.local_sgd",
    "torch.parallel.outlook", "torch.parallel.pipeline", "torch.parallel.shared_memory",
    "torch.parallel.shared_task", "torch.parallel.shares",
)  # fmt: skip
"""Modules that other rooms may import; all else is this room's own."""
