"""A stream of images for PyTorch's loader, in place of a task's synthetic examples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from sonda.record.errors import SondaError
from sonda.record.protocols import Task
from sonda.workloads.data.image_stream import ImageStream
from sonda.workloads.in_torch.task import TorchTask


class StreamedImages(Dataset[tuple[tuple[Tensor], int]]):
    """Examples by their position in the endless stream."""

    def __init__(self, stream: ImageStream) -> None:
        self.stream = stream

    def __getitem__(self, place: int) -> tuple[tuple[Tensor], int]:
        image, kind = self.stream.example(place)
        return (torch.from_numpy(image),), kind


class StreamSampler(Sampler[int]):
    """Positions in the stream in the order of training, without end."""

    def __init__(self, stream: ImageStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[int]:
        return self.stream.places()


def train_on_stream(task: Task, stream: ImageStream) -> TorchTask:
    """Let the task train on the stream's images. Raises SondaError where it does not load examples one by one."""
    if not isinstance(task, TorchTask) or task.batch_size is None:
        raise SondaError("this workload does not load images one by one", "leave out --data")
    task.dataset, task.sampler = StreamedImages(stream), StreamSampler(stream)
    return task
