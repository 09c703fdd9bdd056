"""Batch normalisation over the batch of all ranks, with equal or unequal shares, on any device.

PyTorch's SyncBatchNorm does the same for GPUs only. Forward gathers every rank's mean, variance and number of values,
and combines them by Chan's formula, which does not cancel. Backward sums over ranks the two sums over the batch that
the input's gradient needs. Sums count every value alike, so unequal shares need no weights here. The loss of every rank
must be weighted (`gradients.py`).

"Moments" are the rows mean, biased variance and 1 / sqrt(variance + eps), with one column per channel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import _len_torch_dispatch_stack
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from sonda.frameworks.torch.parallel.group import Communicator
from sonda.frameworks.torch.parallel.norm_kernels import compile_kernels
from sonda.record.jit import require_compiler

EMPTY = np.empty(0, np.float32)


class SharedBatchNorm(_BatchNorm):
    """A batch norm over the batch of all ranks of a group. Its running statistics are equal on all ranks."""

    group: Communicator

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, got {input.dim()}")

    def forward(self, values: Tensor) -> Tensor:
        """Normalised values. In evaluation, and in a group of one rank, PyTorch's own batch norm computes them."""
        if not self.training or self.group.size == 1:
            return super().forward(values)
        self._check_input_dim(values)
        if self.running_mean is not None and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        return _Normalise.apply(values, self.weight, self.bias, self)

    def update_running(self, moments: Tensor, count: float) -> None:
        """Move the running statistics towards the moments of `count` values; their variance is unbiased."""
        if self.running_mean is None or self.running_var is None:
            return
        momentum = self.momentum
        if momentum is None:
            assert self.num_batches_tracked is not None
            momentum = 1.0 / float(self.num_batches_tracked)
        if _can_fuse(self.group, moments, self.running_mean):
            running = self.running_mean.numpy(), self.running_var.numpy()
            compile_kernels().update_running(moments.numpy(), count, momentum, *running)
            return
        mean, variance, _ = moments
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype) * (count / (count - 1)), momentum)


def share_batch_norms(model: nn.Module, group: Communicator) -> nn.Module:
    """Replace every batch norm of the model by one that the group shares; parameters and buffers stay the same.

    Raises MissingExtraError where a group that shares memory needs kernels that cannot be compiled here.
    """
    made: dict[int, SharedBatchNorm] = {}

    def shared(module: nn.Module) -> nn.Module:
        if not isinstance(module, _BatchNorm) or isinstance(module, SharedBatchNorm):
            for name, child in module._modules.items():  # `named_children` skips a second name of the same module
                replacement = shared(child) if child is not None else None
                if replacement is not child:
                    setattr(module, name, replacement)
            return module
        if group.memory is not None:
            require_compiler()
        if id(module) not in made:
            made[id(module)] = _shared_of(module, group)
        return made[id(module)]

    return shared(model)


def _shared_of(module: _BatchNorm, group: Communicator) -> SharedBatchNorm:
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
    """Forward and backward with their exchanges, by compiled kernels where `_can_fuse`, by PyTorch's elsewhere."""

    @staticmethod
    def forward(
        context: Any, values: Tensor, weight: Tensor | None, bias: Tensor | None, norm: SharedBatchNorm
    ) -> Tensor:
        group = norm.group
        fused = _can_fuse(group, values, weight, bias)
        moments, count = _fused_moments(values, norm) if fused else _moments(values, norm)
        if count <= 1:
            raise ValueError(f"expected more than 1 value per channel when training, got input size {values.shape}")
        if fused:
            result = torch.empty_like(values)
            compile_kernels().normalise(
                _rows(values), moments.numpy(), _array_or_empty(weight), _array_or_empty(bias), _rows(result)
            )
        else:
            cudnn = torch.backends.cudnn.enabled
            # In half precision the moments are single, and PyTorch wants weight and bias of their type.
            affine = (None if tensor is None else tensor.to(moments.dtype) for tensor in (weight, bias))
            result = torch.batch_norm(values, *affine, moments[0], moments[1], False, 0.0, norm.eps, cudnn)
        norm.update_running(moments, count)
        context.save_for_backward(values, weight, moments)
        context.eps, context.group, context.count = norm.eps, group, count
        return result

    @staticmethod
    def backward(context: Any, *gradients: Any) -> tuple[Any, ...]:
        values, weight, moments = context.saved_tensors
        gradient = gradients[0].contiguous(memory_format=_layout(values))
        compute = _fused_backward if _can_fuse(context.group, values, gradient, moments, weight) else _backward
        of_values, scaled, added = compute(context, values, gradient, moments, weight)
        # The sums of gradient x normalised value and of gradient are the gradients of weight and bias.
        _, needs_weight, needs_bias, _ = context.needs_input_grad
        return of_values, scaled if needs_weight else None, added if needs_bias else None, None


def _fused_moments(values: Tensor, norm: SharedBatchNorm) -> tuple[Tensor, float]:
    """Moments of all ranks' batches, and the number of values."""
    memory, kernels = norm.group.memory, compile_kernels()
    assert memory is not None
    rows = _rows(values)
    slots = memory.slots(rows.dtype, 2 * values.shape[1] + 1)
    kernels.statistics(rows, slots[memory.me])
    _exchange(norm.group)
    moments = values.new_empty((3, values.shape[1]))
    return moments, kernels.combine(slots, norm.eps, moments.numpy())


def _moments(values: Tensor, norm: SharedBatchNorm) -> tuple[Tensor, float]:
    return _combine_moments(*_own_moments(values), values.numel() // values.shape[1], norm.eps, norm.group)


def _fused_backward(
    context: Any, values: Tensor, gradient: Tensor, moments: Tensor, weight: Tensor | None
) -> tuple[Tensor | None, Tensor, Tensor]:
    group, kernels, channels = context.group, compile_kernels(), values.shape[1]
    memory = group.memory
    rows, gradient_rows, moments_array = _rows(values), _rows(gradient), moments.numpy()
    slots = memory.slots(rows.dtype, 2 * values.shape[1] + 1)
    own = slots[memory.me]
    kernels.gradient_sums(rows, gradient_rows, moments_array, own)
    scaled, added = torch.from_numpy(own[: 2 * channels].copy()).view(2, channels)
    input_gradient = None
    if context.needs_input_grad[0]:
        _exchange(group)
        terms = moments.new_empty((3, channels)).numpy()
        kernels.gradient_terms(slots, context.count, moments_array[2], _array_or_empty(weight), terms)
        input_gradient = torch.empty_like(values)
        kernels.input_gradient(rows, gradient_rows, moments_array, terms, _rows(input_gradient))
    return input_gradient, scaled, added


def _backward(
    context: Any, values: Tensor, gradient: Tensor, moments: Tensor, weight: Tensor | None
) -> tuple[Tensor | None, Tensor, Tensor]:
    scaled, added = _gradient_sums(gradient, values, moments, context.eps)
    input_gradient = None
    if context.needs_input_grad[0]:
        terms = _gradient_terms(scaled, added, moments[2], weight, context.count, context.group)
        input_gradient = _input_gradient(values, gradient, moments, terms, context.eps)
    return input_gradient, scaled, added


def _rows(values: Tensor) -> np.ndarray:
    """The tensor's memory as an array of samples x channels x places."""
    return values.detach().view(values.shape[0], values.shape[1], -1).numpy()


def _array_or_empty(values: Tensor | None) -> np.ndarray:
    """The tensor's memory as an array; an empty one for None."""
    return EMPTY if values is None else values.detach().numpy()


def _layout(values: Tensor) -> torch.memory_format:
    """The memory format of values: channels last, or contiguous."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(values.dim())
    if last is not None and values.is_contiguous(memory_format=last) and not values.is_contiguous():
        return last
    return torch.contiguous_format


def _can_fuse(group: Communicator, first: Tensor, *others: Tensor | None) -> bool:
    """Whether compiled kernels can compute it: values of one type, contiguous, in the processor's memory.

    While operations are counted, PyTorch's kernels are used, because the counter sees only those.
    """
    return (
        group.memory is not None
        and first.dtype in (torch.float32, torch.float64)
        and first.is_contiguous()
        and all(tensor is None or (tensor.dtype == first.dtype and tensor.is_contiguous()) for tensor in others)
        and not _len_torch_dispatch_stack()
    )


def _input_gradient(values: Tensor, gradient: Tensor, moments: Tensor, terms: Tensor, eps: float) -> Tensor:
    """dx = f·dy - f·(sum of dy)/N - f·normalised·(sum of dy·normalised)/N."""
    slope, shift, factor = terms
    cudnn = torch.backends.cudnn.enabled
    input_gradient = torch.batch_norm(values, slope, shift, moments[0], moments[1], False, 0.0, eps, cudnn)
    shape = [1, -1] + [1] * (values.dim() - 2)
    return input_gradient.addcmul_(gradient, factor.to(gradient.dtype).view(shape))


def _combine_moments(mean: Tensor, variance: Tensor, own: int, eps: float, group: Communicator) -> tuple[Tensor, float]:
    """Moments of all ranks' batches, and the number of values; `own` is the number of this rank's values."""
    channels = len(mean)
    if group.memory is not None:
        kernels = compile_kernels()
        ours = mean.numpy()
        slots = group.memory.slots(ours.dtype, 2 * len(ours) + 1)
        kernels.pack(ours, variance.numpy(), float(own), slots[group.memory.me])
        _exchange(group)
        moments = mean.new_empty((3, channels))
        return moments, kernels.combine(slots, eps, moments.numpy())
    rows = group.gather(torch.cat((mean, variance, mean.new_full((1,), float(own)))))
    means, variances, counts = rows[:, :channels], rows[:, channels:-1], rows[:, -1:]
    total = counts.sum()
    shares = counts / total
    whole = (shares * means).sum(0)
    spread = (shares * (variances + (means - whole) ** 2)).sum(0)
    return torch.stack((whole, spread, torch.rsqrt(spread + eps))), float(total)


def _gradient_terms(
    scaled: Tensor, added: Tensor, inverse: Tensor, weight: Tensor | None, count: float, group: Communicator
) -> Tensor:
    """Rows of slope, shift and factor of the input's gradient, from this rank's sums and those of the others."""
    if group.memory is not None:
        kernels = compile_kernels()
        ours = scaled.numpy()
        slots = group.memory.slots(ours.dtype, 2 * len(ours) + 1)
        kernels.pack(ours, added.numpy(), 0.0, slots[group.memory.me])
        _exchange(group)
        terms = inverse.new_empty((3, len(scaled)))
        weights = ours[:0] if weight is None else weight.detach().to(inverse.dtype).numpy()
        kernels.gradient_terms(slots, count, inverse.numpy(), weights, terms.numpy())
        return terms
    all_scaled, all_added = group.sum(torch.cat((scaled, added))).split(len(scaled))
    factor = inverse if weight is None else weight.to(inverse.dtype) * inverse
    share = factor * (-1.0 / count)
    return torch.stack([row.to(inverse.dtype) for row in (share * all_scaled, share * all_added, factor)])


def _exchange(group: Communicator) -> None:
    assert group.memory is not None
    group.memory.exchange()
    group.meter.add(group.memory.take_waited())


def _own_moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and biased variance of every channel of this rank's values, by the kernel of PyTorch's own batch norm.

    For values in half precision they are single: the kernel takes its type from the running statistics.
    """
    running = None
    if values.dtype in (torch.float16, torch.bfloat16):
        running = values.new_zeros(values.shape[1], dtype=torch.float32)
    mean, variance = torch.batch_norm_update_stats(values, running, running, 0.0)
    return mean, variance


def _gradient_sums(gradient: Tensor, values: Tensor, moments: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Per channel: the sum of gradient x normalised value, and the sum of gradient."""
    mean, variance, inverse = moments
    # With training=False PyTorch's kernel uses the statistics that it is given, here those of all ranks.
    _, scaled, added = torch.ops.aten.native_batch_norm_backward.default(
        gradient, values, torch.ones_like(mean), mean, variance, mean, inverse, False, eps, [False, True, True]
    )
    return scaled, added
