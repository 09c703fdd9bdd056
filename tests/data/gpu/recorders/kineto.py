"""Traces of torch.profiler: `python kineto.py DIRECTORY`."""

import json
import sys
from pathlib import Path

import torch
import torchvision
from torch.profiler import ProfilerActivity, profile, record_function

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
out = Path(sys.argv[1])
torch.backends.cudnn.benchmark = True


def train(model, shape, classes, name):
    """Three observed training steps after six others."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss = torch.nn.CrossEntropyLoss()
    host = torch.randn(*shape).pin_memory()
    labels = torch.randint(0, classes, (shape[0],)).cuda()

    def step():
        inputs = host.to("cuda", non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        loss(model(inputs), labels).backward()
        optimizer.step()

    for _ in range(6):
        step()
    torch.cuda.synchronize()
    with profile(activities=BOTH, record_shapes=True) as profiler:
        for number in range(3):
            with record_function(f"ProfilerStep#{number}"):
                step()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(out / f"{name}.json.gz"))
    sums = [(one.key, one.count, one.device_time_total) for one in profiler.key_averages()]
    (out / f"{name}.sums.json").write_text(json.dumps(sums))


train(torchvision.models.resnet18(num_classes=9).cuda(), (16, 3, 64, 64), 9, "resnet18")
layers = torch.nn.Linear(784, 192), torch.nn.Sigmoid(), torch.nn.Linear(192, 10)
train(torch.nn.Sequential(*layers).cuda(), (50, 784), 10, "mlp")

matrix = torch.randn(2048, 2048, device="cuda")
stream = torch.cuda.Stream()
host = torch.empty(64 << 20, dtype=torch.uint8).pin_memory()
device = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
with profile(activities=BOTH) as profiler:
    for _ in range(3):
        with torch.cuda.stream(stream):
            device.copy_(host, non_blocking=True)
        product = matrix @ matrix @ matrix
        torch.cuda.synchronize()
profiler.export_chrome_trace(str(out / "streams.json.gz"))
with profile(activities=[ProfilerActivity.CUDA]) as profiler:
    pass
profiler.export_chrome_trace(str(out / "empty.json"))
