"""Describes an optimizer's step: how it runs, on what, and which rows of tables its gradients touch."""

from __future__ import annotations

from typing import Any

SMALL = 1 << 14
"""Elements of a tensor whose update costs more overhead than work, whatever the optimizer."""
TABLE_ROWS = 1000
"""Rows from which on a matrix may be a table, of which a batch touches few."""
SAMPLED_ROWS = 2048


def describe_update(torch: Any, optimizer: Any, weights: list, model: Any) -> dict:
    """What is about to be updated, in elements; and of tables the part whose gradient is zero."""
    updated = [weight for weight in weights if weight.grad is not None]
    groups = optimizer.param_groups
    states = [value for weight in updated for value in optimizer.state.get(weight, {}).values()]
    states = [value for value in states if isinstance(value, torch.Tensor) and value.dim()]
    devices = {weight.device.type for weight in updated}
    computes = {weight.device.type for weight in model.parameters()} if model is not None else set()
    return {
        "optimizer": type(optimizer).__name__,
        "tensors": len(updated),
        "small": sum(weight.numel() <= SMALL for weight in updated),
        "elements": sum(weight.numel() for weight in updated),
        "states": sum(state.numel() for state in states),
        "bits": max((8 * state.element_size() for state in states if state.is_floating_point()), default=0),
        "weight_bits": max((8 * weight.element_size() for weight in updated if weight.is_floating_point()), default=0),
        "fused": all(bool(group.get("fused")) for group in groups),
        "foreach": all(bool(group.get("foreach")) for group in groups),
        "can_fuse": all("fused" in group for group in groups),
        "own": not type(optimizer).__module__.startswith("torch."),
        "elsewhere": bool(computes) and not devices & computes and bool(devices),
        "tables": [table for weight in updated if (table := _describe_table(torch, weight))],
    }


def _describe_table(torch: Any, weight: Any) -> list:
    """Rows, elements, and the part of the rows whose gradient is zero by a sample; [] for what is no such table."""
    gradient = weight.grad
    rows = weight.shape[0] if weight.dim() == 2 else 0
    if rows < TABLE_ROWS or gradient.layout != torch.strided or gradient.device.type != "cpu":
        return []
    sample = gradient.detach()[:: max(1, rows // SAMPLED_ROWS)]
    touched = sample.ne(0).any(dim=1)
    untouched = 1 - float(touched.sum().item()) / max(1, len(sample))
    return [rows, weight.numel(), untouched, id(weight)] if untouched >= 0.5 else []
