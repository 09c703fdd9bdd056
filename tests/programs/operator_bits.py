"""Runs the operations of PyTorch's own operator database bare and counted, forward and backward, and compares bits.

Arguments: the number of this part and of all parts, the device, and settings `dtype:context:samples`. Prints a JSON
object: for each setting what was tried, and what was not the same. Contexts: grad, no_grad, inference_mode, autocast,
forward_mode (tangents in place of gradients).
"""

import contextlib
import functools
import itertools
import json
import random
import sys
import time
import types
import unittest
import warnings

import torch
from torch.autograd import forward_ad
from torch.utils._pytree import tree_flatten, tree_map

from sonda.frameworks.collector.recorder import Recorder
from sonda.frameworks.collector.sampling.schedule import Schedule
from sonda.frameworks.torch.observe.observer import TorchObserver

UNWRITTEN = dict.fromkeys(
    ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
    "returns memory that nobody has written",
)
PIVOTS = "the driver gelsy reads pivots that nobody has written"


def load_database():
    """The database; what PyTorch's test tools import for comparing printed texts is not needed for it."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db


def components(tensor):
    """The strided tensors that a tensor of another layout consists of; None for a strided one."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_nested:
        return [tensor.values()] if tensor.layout is torch.jagged else list(tensor.unbind())
    if tensor.layout is not torch.strided:
        return [tensor.to_dense()]
    return [tensor.int_repr()] if tensor.is_quantized else None


def describe(tensor):
    """Everything that two equal tensors share: the bits of their elements, and how they lie in memory."""
    kept = (str(tensor.dtype), str(tensor.layout), type(tensor).__name__, tensor.is_inference(), tensor.requires_grad)
    inner = components(tensor.detach())
    if inner is not None:
        return (*kept, *(describe(one) for one in inner))
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    dense = torch.empty(plain.shape, dtype=plain.dtype).copy_(plain).reshape(-1)
    lies = (tuple(tensor.shape), tensor.stride(), tensor.is_conj(), tensor.is_neg())
    return (*kept, *lies, dense.view(torch.uint8).numpy().tobytes() if dense.numel() else b"")


def copy_tensor(value):
    """The same tensor in other memory: some operations write into what they are given."""
    if not isinstance(value, torch.Tensor):
        return value
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and components(value.detach()) is None
    if plain and not (value.is_conj() or value.is_neg()):
        storage = value.untyped_storage().clone()
        place = (value.storage_offset(), value.size(), value.stride())
        other = torch.empty(0, dtype=value.dtype, device=value.device).set_(storage, *place)
    else:
        other = value.detach().clone()
    return other.requires_grad_(value.requires_grad)


CONTEXTS = {
    "grad": lambda device: contextlib.nullcontext(),
    "no_grad": lambda device: torch.no_grad(),
    "inference_mode": lambda device: torch.inference_mode(),
    "autocast": lambda device: torch.autocast(device, torch.bfloat16),
}


def seed(device):
    """All random numbers anew. Not by `torch.manual_seed`, which notes down where it was called without a GPU."""
    random.seed(0)
    torch.default_generator.manual_seed(0)
    if device == "cuda":
        torch.cuda.manual_seed(0)


def run_operation(operation, sample, context, device, around):
    """What the operation and its backward return, as comparable values; `around` is entered for the operation."""
    seed(device)
    first, args, kwargs = tree_map(copy_tensor, (sample.input, sample.args, sample.kwargs))
    leaves = [one for one in tree_flatten((first, args, kwargs))[0] if isinstance(one, torch.Tensor)]
    leaves = [one for one in leaves if one.requires_grad]
    try:
        with CONTEXTS[context](device), around():
            out = operation(first, *args, **kwargs)
    except Exception as error:
        return [("raised", type(error).__name__, str(error).partition("\n")[0])]
    values = tree_flatten(out)[0]
    results = [describe(one) if isinstance(one, torch.Tensor) else repr(one) for one in values]
    roots = [one for one in values if isinstance(one, torch.Tensor) and one.requires_grad]
    if not roots or not leaves:
        return results
    chance = torch.Generator(device).manual_seed(1)
    try:
        gradients = [
            torch.randn(one.shape, dtype=one.dtype, device=device, generator=chance)
            if one.layout is torch.strided
            else torch.ones_like(one)
            for one in roots
        ]
        found = torch.autograd.grad(roots, leaves, gradients, allow_unused=True)
    except Exception as error:
        return [*results, ("raised", type(error).__name__, str(error).partition("\n")[0])]
    return [*results, *(None if one is None else describe(one) for one in found)]


def run_forward_mode(operation, sample, device, around):
    """What the operation returns and its tangents, as comparable values."""
    seed(device)
    chance = torch.Generator(device).manual_seed(1)

    def make_dual(value):
        if not isinstance(value, torch.Tensor) or not value.requires_grad or value.layout is not torch.strided:
            return copy_tensor(value)
        tangent = torch.randn(value.shape, dtype=value.dtype, device=device, generator=chance)
        return forward_ad.make_dual(copy_tensor(value.detach()), tangent)

    try:
        with around(), forward_ad.dual_level():
            first, args, kwargs = tree_map(make_dual, (sample.input, sample.args, sample.kwargs))
            values = tree_flatten(operation(first, *args, **kwargs))[0]
            found = [part for one in values if isinstance(one, torch.Tensor) for part in forward_ad.unpack_dual(one)]
            return [None if one is None else describe(one) for one in found]
    except Exception as error:
        return [("raised", type(error).__name__, str(error).partition("\n")[0])]


class Counted:
    """Counts as an observed program does: phases with the counting mode, `torch.autograd.grad` replaced."""

    def __init__(self):
        self.recorder = Recorder("")
        self.observer = TorchObserver(self.recorder, torch, Schedule(count=False))
        self.seen = 0
        """Operations that were counted."""
        record = self.observer.counter.record_operation

        def count_and_record(*call):
            self.seen += 1
            record(*call)

        self.observer.counter.record_operation = count_and_record

    @contextlib.contextmanager
    def counting(self):
        self.observer.install()
        try:
            with self.observer.count_operations([]):
                yield
        finally:
            self.observer.remove()
            for one in self.recorder.streams:
                one.events.clear()

    def forward(self):
        return self.observer.phase(self.recorder.stream(), self.observer.phases.codes["forward"])


def compare(run_bare, bare, observed):
    """ "same"; "not reproducible" where bare runs differ among themselves; else what differs."""
    if bare == observed:
        return "same"
    if any(run_bare() != bare for _ in range(3)):
        return "not reproducible"
    if len(bare) != len(observed):
        return f"{len(bare)} results bare, {len(observed)} counted; {str(bare[-1])[:120]} {str(observed[-1])[:120]}"
    at = next(at for at in range(len(bare)) if bare[at] != observed[at])
    return f"result {at} of {len(bare)}: {str(bare[at])[:120]} bare, {str(observed[at])[:120]} counted"


def samples_of(operation, device, dtype, context, limit):
    """The first samples of an operation, and why others are left out."""
    learns = context in ("grad", "autocast", "forward_mode") and operation.supports_autograd
    learns = learns and dtype in operation.supported_backward_dtypes(device)
    seed(device)
    samples = list(itertools.islice(operation.sample_inputs_func(operation, device, dtype, learns), limit))
    if operation.name != "linalg.lstsq":
        return samples, ""
    defined = [sample for sample in samples if sample.kwargs.get("driver", "gelsy") != "gelsy"]
    return defined, "" if len(defined) == len(samples) else PIVOTS


def select(operations, device, dtype, context, limit, table):
    """Name, operation and samples of all operations that can be tried."""
    selected = []
    for operation in operations:
        name = ".".join(filter(None, (operation.name, operation.variant_test_name)))
        if dtype not in operation.supported_dtypes(device):
            continue
        if context == "forward_mode" and not operation.supports_forward_ad:
            continue
        if operation.name in UNWRITTEN:
            table["left_out"][name] = UNWRITTEN[operation.name]
            continue
        samples, reason = samples_of(operation, device, dtype, context, limit)
        if reason:
            table["left_out"][name] = reason
        table["operations"] += 1
        table["samples"] += len(samples)
        selected.append((name, operation, samples))
    return selected


def try_setting(operations, device, dtype, context, limit, counted):
    table = {"operations": 0, "samples": 0, "same": 0, "left_out": {}, "different": {}, "not_reproducible": {}}
    selected = select(operations, device, dtype, context, limit, table)

    def run(operation, sample, around=contextlib.nullcontext):
        if context == "forward_mode":
            return run_forward_mode(operation, sample, device, around)
        return run_operation(operation, sample, context, device, around)

    bare = [[run(operation, sample) for sample in samples] for _, operation, samples in selected]
    with counted.counting():
        observed = [
            [run(operation, sample, counted.forward) for sample in samples] for _, operation, samples in selected
        ]
    for at, (name, operation, samples) in enumerate(selected):
        for number, sample in enumerate(samples):
            run_bare = functools.partial(run, operation, sample)
            result = compare(run_bare, bare[at][number], observed[at][number])
            if result == "same":
                table["same"] += 1
            elif result == "not reproducible":
                table["not_reproducible"][name] = table["not_reproducible"].get(name, 0) + 1
            else:
                table["different"].setdefault(name, f"sample {number}: {result}")
    return table


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    part, parts, device = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    operations = load_database()[part::parts]
    counted = Counted()
    tables = {}
    for setting in sys.argv[4:]:
        dtype, context, limit = setting.split(":")
        begin, seen = time.monotonic(), counted.seen
        table = try_setting(operations, device, getattr(torch, dtype), context, int(limit), counted)
        tables[setting] = {**table, "seen": counted.seen - seen, "seconds": round(time.monotonic() - begin, 1)}
    print(json.dumps(tables))


if __name__ == "__main__":
    main()
