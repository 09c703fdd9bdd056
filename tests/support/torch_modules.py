"""What processes that others are forked from have of PyTorch in memory."""

from __future__ import annotations

MODULES = (
    "torch",
    "torch.profiler",
    "torch.nn.parallel.distributed",
    # What the first optimizer imports, and the first backward.
    "torch._dynamo",
    "torch._dynamo.repro.after_dynamo",
    "torch._functorch.aot_autograd",
    "torch._inductor.compiler_bisector",
    # What the first compilation imports, with the backends eager and aot_eager.
    "torch._dynamo.backends.cudagraphs",
    "torch._dynamo.backends.inductor",
    "torch._dynamo.dce_extra_outputs",
    "torch._dynamo.repro.after_aot",
    "torch._inductor.compile_fx",
    "torch.distributed.tensor.experimental",
    "torch.export._trace",
    "torch.fx.experimental.validator",
)
