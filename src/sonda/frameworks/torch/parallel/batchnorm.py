"""Batch normalisation over the batch of all ranks, however unequal their shares are, on any device.

PyTorch's SyncBatchNorm does the same for GPUs only. Forward: every rank's mean and variance are gathered with its
number of values and combined by Chan's formula, which does not cancel. Backward: the two sums over the batch that the
gradient of the input needs are summed over ranks. Sums weigh every value alike, so unequal shares need no weights here
as long as the loss of every rank is weighted already (`gradients.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import _len_torch_dispatch_stack
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from sonda.frameworks.torch.parallel.group import Group
from sonda.frameworks.torch.parallel.norm_kernels import compiled

NONE = np.empty(0, np.float32)


class SharedBatchNorm(_BatchNorm):
    """A batch norm whose batch is that of all ranks of a group. Its running statistics are equal on all of them."""

    group: Group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.dim()}")

    def forward(self, values: Tensor) -> Tensor:
        """Normalised values. In evaluation, or where this rank is alone, what PyTorch's own batch norm gives."""
        if not self.training or self.group.size == 1:
            return super().forward(values)
        self._check_input_dim(values)
        if self.running_mean is not None and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        return _Normalise.apply(values, self.weight, self.bias, self)

    def follow(self, found: Tensor, count: float) -> None:
        """Move the running statistics; their variance is the unbiased one, as PyTorch keeps it."""
        if self.running_mean is None or self.running_var is None:
            return
        momentum = self.momentum
        if momentum is None:
            assert self.num_batches_tracked is not None
            momentum = 1.0 / float(self.num_batches_tracked)
        if _in_one_pass(self.group, found, self.running_mean):
            running = self.running_mean.numpy(), self.running_var.numpy()
            compiled().follow(found.numpy(), count, momentum, *running)
            return
        mean, variance, _ = found
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype) * (count / (count - 1)), momentum)


def share_batch_norms(model: nn.Module, group: Group) -> nn.Module:
    """The model with every batch norm shared by the group; parameters and buffers are the same tensors as before."""
    made: dict[int, SharedBatchNorm] = {}

    def shared(module: nn.Module) -> nn.Module:
        if not isinstance(module, _BatchNorm) or isinstance(module, SharedBatchNorm):
            for name, child in module._modules.items():  # `named_children` leaves out a second name of the same
                replacement = shared(child) if child is not None else None
                if replacement is not child:
                    setattr(module, name, replacement)
            return module
        if id(module) not in made:
            made[id(module)] = _shared_of(module, group)
        return made[id(module)]

    return shared(model)


def _shared_of(module: _BatchNorm, group: Group) -> SharedBatchNorm:
    if is_lazy(module.weight):
        raise ValueError("a lazy batch norm has no parameters yet: run the model once before sharing it")
    new = SharedBatchNorm(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
    new.weight, new.bias = module.weight, module.bias
    new.running_mean, new.running_var = module.running_mean, module.running_var
    new.num_batches_tracked = module.num_batches_tracked
    new.train(module.training)
    new.group = group
    return new


class _Normalise(torch.autograd.Function):
    """The exchange in forward and backward, around our own kernels where they may do it and PyTorch's elsewhere."""

    @staticmethod
    def forward(
        context: Any, values: Tensor, weight: Tensor | None, bias: Tensor | None, norm: SharedBatchNorm
    ) -> Tensor:
        group = norm.group
        compiled_here = _in_one_pass(group, values, weight, bias)
        found, count = _found_in_one_pass(values, norm) if compiled_here else _found(values, norm)
        if count <= 1:
            raise ValueError(f"expected more than 1 value per channel when training, got input size {values.shape}")
        if compiled_here:
            result = torch.empty_like(values)
            compiled().normalise(_rows(values), found.numpy(), _numbers(weight), _numbers(bias), _rows(result))
        else:
            cudnn = torch.backends.cudnn.enabled
            # In half precision the statistics are single, and PyTorch wants weight and bias of their type.
            own = (None if one is None else one.to(found.dtype) for one in (weight, bias))
            result = torch.batch_norm(values, *own, found[0], found[1], False, 0.0, norm.eps, cudnn)
        norm.follow(found, count)
        context.save_for_backward(values, weight, found)
        context.eps, context.group, context.count = norm.eps, group, count
        return result

    @staticmethod
    def backward(context: Any, *gradients: Any) -> tuple[Any, ...]:
        values, weight, found = context.saved_tensors
        gradient = gradients[0].contiguous(memory_format=_layout(values))
        given = _backward_in_one_pass if _in_one_pass(context.group, values, gradient, found, weight) else _backward
        of_values, scaled, added = given(context, values, gradient, found, weight)
        # Sums of gradient x normalised value and of gradient are the gradients of weight and bias, where there are any.
        _, of_weight, of_bias, _ = context.needs_input_grad
        return of_values, scaled if of_weight else None, added if of_bias else None, None


def _found_in_one_pass(values: Tensor, norm: SharedBatchNorm) -> tuple[Tensor, float]:
    """Rows of mean, biased variance and 1 / sqrt(variance + eps) of all ranks' batches, and the number of values."""
    memory, kernels = norm.group.memory, compiled()
    assert memory is not None
    rows = _rows(values)
    slots = memory.slots(rows.dtype, 2 * values.shape[1] + 1)
    kernels.statistics(rows, slots[memory.me])
    _exchange(norm.group)
    found = values.new_empty((3, values.shape[1]))
    return found, kernels.combine(slots, norm.eps, found.numpy())


def _found(values: Tensor, norm: SharedBatchNorm) -> tuple[Tensor, float]:
    return _combined(*_statistics(values), values.numel() // values.shape[1], norm.eps, norm.group)


def _backward_in_one_pass(
    context: Any, values: Tensor, gradient: Tensor, found: Tensor, weight: Tensor | None
) -> tuple[Tensor | None, Tensor, Tensor]:
    group, kernels, channels = context.group, compiled(), values.shape[1]
    memory = group.memory
    rows, of_gradient, of_found = _rows(values), _rows(gradient), found.numpy()
    slots = memory.slots(rows.dtype, 2 * values.shape[1] + 1)
    own = slots[memory.me]
    kernels.gradient_sums(rows, of_gradient, of_found, own)
    scaled, added = torch.from_numpy(own[: 2 * channels].copy()).view(2, channels)
    given = None
    if context.needs_input_grad[0]:
        _exchange(group)
        terms = found.new_empty((3, channels)).numpy()
        kernels.gradient_terms(slots, context.count, of_found[2], _numbers(weight), terms)
        given = torch.empty_like(values)
        kernels.input_gradient(rows, of_gradient, of_found, terms, _rows(given))
    return given, scaled, added


def _backward(
    context: Any, values: Tensor, gradient: Tensor, found: Tensor, weight: Tensor | None
) -> tuple[Tensor | None, Tensor, Tensor]:
    scaled, added = _sums(gradient, values, found, context.eps)
    given = None
    if context.needs_input_grad[0]:
        terms = _terms(scaled, added, found[2], weight, context.count, context.group)
        given = _input_gradient(values, gradient, found, terms, context.eps)
    return given, scaled, added


def _rows(values: Tensor) -> np.ndarray:
    """Samples x channels x places, in the memory of the tensor."""
    return values.detach().view(values.shape[0], values.shape[1], -1).numpy()


def _numbers(values: Tensor | None) -> np.ndarray:
    """Empty where there are none."""
    return NONE if values is None else values.detach().numpy()


def _layout(values: Tensor) -> torch.memory_format:
    """How values lie in memory: with their channels last, or in the order of their dimensions."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(values.dim())
    if last is not None and values.is_contiguous(memory_format=last) and not values.is_contiguous():
        return last
    return torch.contiguous_format


def _in_one_pass(group: Group, first: Tensor, *others: Tensor | None) -> bool:
    """Whether our own kernels may do it: values of one type, contiguous, in the processor's memory. Where operations
    are counted, PyTorch's do, which whoever counts can see."""
    return (
        group.memory is not None
        and first.dtype in (torch.float32, torch.float64)
        and first.is_contiguous()
        and all(one is None or (one.dtype == first.dtype and one.is_contiguous()) for one in others)
        and not _len_torch_dispatch_stack()
    )


def _input_gradient(values: Tensor, gradient: Tensor, found: Tensor, terms: Tensor, eps: float) -> Tensor:
    """dx = f·dy - f·(sum of dy)/N - f·normalised·(sum of dy·normalised)/N."""
    slope, shift, factor = terms
    cudnn = torch.backends.cudnn.enabled
    given = torch.batch_norm(values, slope, shift, found[0], found[1], False, 0.0, eps, cudnn)
    shape = [1, -1] + [1] * (values.dim() - 2)
    return given.addcmul_(gradient, factor.to(gradient.dtype).view(shape))


def _combined(mean: Tensor, variance: Tensor, own: int, eps: float, group: Group) -> tuple[Tensor, float]:
    """Rows of mean, biased variance and 1 / sqrt(variance + eps) of all ranks' batches, and the number of values."""
    channels = len(mean)
    if group.memory is not None:
        kernels = compiled()
        ours = mean.numpy()
        slots = group.memory.slots(ours.dtype, 2 * len(ours) + 1)
        kernels.pack(ours, variance.numpy(), float(own), slots[group.memory.me])
        _exchange(group)
        found = mean.new_empty((3, channels))
        return found, kernels.combine(slots, eps, found.numpy())
    rows = group.gather(torch.cat((mean, variance, mean.new_full((1,), float(own)))))
    means, variances, counts = rows[:, :channels], rows[:, channels:-1], rows[:, -1:]
    total = counts.sum()
    shares = counts / total
    whole = (shares * means).sum(0)
    spread = (shares * (variances + (means - whole) ** 2)).sum(0)
    return torch.stack((whole, spread, torch.rsqrt(spread + eps))), float(total)


def _terms(scaled: Tensor, added: Tensor, inverse: Tensor, weight: Tensor | None, count: float, group: Group) -> Tensor:
    """Rows of slope, shift and factor of the input's gradient, from the sums of all ranks."""
    if group.memory is not None:
        kernels = compiled()
        ours = scaled.numpy()
        slots = group.memory.slots(ours.dtype, 2 * len(ours) + 1)
        kernels.pack(ours, added.numpy(), 0.0, slots[group.memory.me])
        _exchange(group)
        found = inverse.new_empty((3, len(scaled)))
        of_weight = ours[:0] if weight is None else weight.detach().to(inverse.dtype).numpy()
        kernels.gradient_terms(slots, count, inverse.numpy(), of_weight, found.numpy())
        return found
    of_scaled, of_added = group.sum(torch.cat((scaled, added))).split(len(scaled))
    factor = inverse if weight is None else weight.to(inverse.dtype) * inverse
    share = factor * (-1.0 / count)
    return torch.stack([one.to(inverse.dtype) for one in (share * of_scaled, share * of_added, factor)])


def _exchange(group: Group) -> None:
    assert group.memory is not None
    group.memory.exchange()
    group.meter.add(group.memory.take_waited())


def _statistics(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of every channel, by the kernel of PyTorch's own batch norm.

    Those of half precision are single: the kernel takes its type from the running statistics it is given.
    """
    running = None
    if values.dtype in (torch.float16, torch.bfloat16):
        running = values.new_zeros(values.shape[1], dtype=torch.float32)
    mean, variance = torch.batch_norm_update_stats(values, running, running, 0.0)
    return mean, variance


def _sums(gradient: Tensor, values: Tensor, found: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Per channel: the sum of gradient x normalised value, and the sum of gradient."""
    mean, variance, inverse = found
    # Without training its kernel takes the statistics it is given, here those of all ranks.
    _, scaled, added = torch.ops.aten.native_batch_norm_backward.default(
        gradient, values, torch.ones_like(mean), mean, variance, mean, inverse, False, eps, [False, True, True]
    )
    return scaled, added
