"""A small convolutional network that trains, with the options that the arguments name."""

import multiprocessing
import os
import sys

import torch
from digest import report
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

GIVEN = sys.argv[1:]


class Rectified(nn.Module):
    """An activation that is a function, compiled or not."""

    def __init__(self):
        super().__init__()
        self.compute = torch.relu
        if "compile_activation" in GIVEN:
            self.compute = torch.compile(torch.relu, backend="eager")
        if "script_activation" in GIVEN:
            self.compute = torch.jit.script(rectify)

    def forward(self, inputs):
        return self.compute(inputs)


def rectify(inputs):
    return torch.relu(inputs)


def network():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Rectified(), nn.Flatten(), nn.Linear(8 * 8 * 8, 4))
    if "channels_last" in GIVEN:
        model = model.to(memory_format=torch.channels_last)
    return model.to(torch.bfloat16) if "bfloat16" in GIVEN else model


class Trainer:
    def __init__(self, model):
        self.model = model

    @torch.compile(backend="eager")
    def compute_loss(self, inputs, target):
        return nn.functional.cross_entropy(self.model(inputs), target)


def train(steps=2):
    torch.manual_seed(0)
    model = called = network()
    if "compile" in GIVEN:
        called = torch.compile(model, backend="eager")
    if "compile_in_place" in GIVEN:
        model.compile(backend="eager")
    if "compile_forward" in GIVEN:
        model.forward = torch.compile(model.forward, backend="eager")
    if "compile_parts" in GIVEN:
        for part in model:
            part.compile(backend="eager")
    if "compile_last" in GIVEN:
        model[-1].compile(backend="eager")
    if "trace" in GIVEN:
        called = torch.jit.trace(model, torch.randn(2, 3, 8, 8))
    if "script" in GIVEN:
        called = torch.jit.script(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(8 * steps, 3, 8, 8), torch.randint(4, (8 * steps,)))
    workers = {"num_workers": 1, "multiprocessing_context": "fork"} if "workers" in GIVEN else {}
    losses = []

    def compute_loss(inputs, target):
        if "autocast_inside" not in GIVEN:
            return criterion(called(inputs), target)
        with torch.autocast("cpu", torch.bfloat16):
            return criterion(called(inputs), target)

    criterion = nn.functional.cross_entropy
    if "compile_criterion" in GIVEN:
        criterion = torch.compile(criterion, backend="eager")
    if "compile_loss" in GIVEN:
        compute_loss = torch.compile(compute_loss, backend="eager", fullgraph="fullgraph" in GIVEN)
    if "compile_method" in GIVEN:
        compute_loss = Trainer(model).compute_loss

    def step(inputs, target):
        inputs = inputs.to(model[0].weight.dtype)
        if "input_channels_last" in GIVEN:
            inputs = inputs.to(memory_format=torch.channels_last)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled="autocast" in GIVEN):
            loss = compute_loss(inputs, target)
        loss.backward()
        optimizer.step()
        return loss

    if "compile_step" in GIVEN:
        step = torch.compile(step, backend="eager")
    for inputs, target in DataLoader(data, batch_size=8, pin_memory=False, **workers):
        losses.append(step(inputs, target).item())
    # What is only evaluated says nothing of how the network is trained, and neither does another loader.
    with torch.no_grad():
        for inputs, _ in DataLoader(data, batch_size=8 * steps):
            model(inputs.to(model[0].weight.dtype))
    report(losses, model.float())


if __name__ == "__main__":
    torch.set_num_threads(2 if "threads" in GIVEN else 1)
    if "matmuls" in GIVEN:
        torch.set_float32_matmul_precision("medium")
    if "bound" in GIVEN:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if "processes" in GIVEN:
        context = multiprocessing.get_context("fork")
        both = context.Barrier(2)

        def work():
            train(1)
            both.wait()
            train(1)

        workers = [context.Process(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    else:
        train(6)
    torch.set_num_threads(1)  # at its end a program may have another number than in its steps
