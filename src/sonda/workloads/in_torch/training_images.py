"""Images of a whole training in PyTorch: batches of a prepared set, on the device, in the model's type and layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from sonda.record.errors import SondaError
from sonda.workloads.data.prepared import epoch_order
from sonda.workloads.data.training_set import TrainingSet
from sonda.workloads.in_torch.prepared_images import PreparedImages
from sonda.workloads.in_torch.task import use_all_cores
from sonda.workloads.networks.image_classifiers import ImageClassifier

UP_FRONT, PER_BATCH = "up-front", "batch"

Mark = Callable[[str], AbstractContextManager[Any]]


class TrainingImages:
    """Batches by the numbers of their images. Values stay float16 until they are on the device.

    `up-front` moves all images to the device once; `batch` reads each batch from the file and moves it.
    """

    def __init__(
        self,
        data: TrainingSet,
        workload: ImageClassifier,
        seed: int,
        device: str = "cpu",
        transfer: str = PER_BATCH,
        workers: int = 0,
        channels_last: bool = False,
        prefetch: int | None = None,
        pin: bool | None = None,
    ) -> None:
        """`prefetch`: batches that all workers together load ahead; None: PyTorch's default. `pin`: whether batches
        are in pinned memory; None: only for a GPU."""
        self.data, self.seed, self.device, self.workers = data, seed, device, workers
        self.prefetch, self.pin = prefetch, pin
        self.channels_last = channels_last
        self.flat, self.classes = workload.flat, workload.classes
        self.one_hot_targets = workload.loss == "mse"
        """Whether targets are one-hot rows, not class numbers."""
        self.mark: Mark = lambda name: nullcontext()
        """Announces a phase where no loader fetches the data."""
        self.moved: tuple[Tensor, Tensor] | None = self._move() if transfer == UP_FRONT else None

    def _move(self) -> tuple[Tensor, Tensor]:
        prepared = self.data.prepared
        try:
            images = torch.from_numpy(np.array(prepared.images)).to(self.device)
            return images, torch.from_numpy(np.array(prepared.labels)).to(self.device)
        except torch.OutOfMemoryError:
            size = prepared.images.nbytes / 1e6
            raise SondaError(
                f"the images ({size:,.0f} MB) do not fit on {self.device} beside the model", "use --transfer batch"
            ) from None

    def order(self, epoch: int) -> np.ndarray:
        """Numbers of the training images in the order of an epoch; the same on every rank."""
        return epoch_order(self.data.shares["train"], self.seed, epoch)

    def numbers(self, part: str) -> np.ndarray:
        """Numbers of the images of a part."""
        return self.data.shares[part]

    def labels(self, numbers: Sequence[int]) -> Tensor:
        """Classes of some images, on the device."""
        return torch.from_numpy(self.data.prepared.labels[np.asarray(numbers)]).to(self.device)

    def batches(self, chosen: Iterable[Any], dtype: torch.dtype) -> Iterator[tuple[tuple[Tensor], Tensor]]:
        """Inputs in the model's type, and classes, for each list of image numbers."""
        if self.moved is not None:
            yield from self._from_device(chosen, dtype)
            return
        on_gpu = self.device != "cpu"
        loader = DataLoader(
            PreparedImages(self.data.prepared),
            batch_sampler=chosen,
            num_workers=self.workers,
            prefetch_factor=-(-self.prefetch // self.workers) if self.prefetch and self.workers else None,
            pin_memory=on_gpu if self.pin is None else self.pin,
            collate_fn=PreparedImages.together,
            worker_init_fn=use_all_cores if self.workers else None,
            generator=torch.Generator().manual_seed(0),
        )
        for images, labels in loader:
            if on_gpu:
                images = images.to(self.device, non_blocking=True)
                labels = labels.to(self.device, non_blocking=True)
            yield (self._adapt_images(images, dtype),), labels

    def _from_device(self, chosen: Iterable[Any], dtype: torch.dtype) -> Iterator[tuple[tuple[Tensor], Tensor]]:
        assert self.moved is not None
        for numbers in chosen:
            with self.mark("data"):
                places = torch.from_numpy(np.asarray(numbers)).to(self.device, non_blocking=True)
                images, labels = (values[places] for values in self.moved)
                inputs = self._adapt_images(images, dtype)
            yield (inputs,), labels

    def _adapt_images(self, images: Tensor, dtype: torch.dtype) -> Tensor:
        images = images.to(dtype)
        if self.flat:
            return images.flatten(1)
        return images.contiguous(memory_format=torch.channels_last) if self.channels_last else images

    def target(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        """The target that the loss compares with."""
        return torch.nn.functional.one_hot(labels, self.classes).to(dtype) if self.one_hot_targets else labels
