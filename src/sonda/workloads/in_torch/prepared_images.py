"""A prepared data set for PyTorch: a Dataset for any DataLoader, and batches without one.

Images stay memory-mapped: only those used are read, and worker processes share the same pages.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from sonda.workloads.data.prepared import Prepared, batches, epoch_order


class PreparedImages(Dataset[tuple[Tensor, Tensor]]):
    """Some images of a prepared data set: `numbers`, such as a share of `split`; by default all.

    A DataLoader asks for whole batches through `__getitems__`. With `collate_fn=PreparedImages.together` a batch is
    read from the file at once, and not stacked image by image.
    """

    def __init__(self, prepared: Prepared, numbers: np.ndarray | None = None) -> None:
        self.prepared = prepared
        self.numbers = np.arange(len(prepared)) if numbers is None else np.asarray(numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        """One image (channels x height x width, float16) and its class."""
        number = self.numbers[at]
        return torch.from_numpy(self.prepared.images[number].copy()), torch.tensor(int(self.prepared.labels[number]))

    def __getitems__(self, places: list[int]) -> FetchedImages:
        return FetchedImages(self, places)

    @staticmethod
    def together(fetched: FetchedImages) -> tuple[Tensor, Tensor]:
        """Images and classes of a batch, as a DataLoader's `collate_fn`."""
        return fetched.batch()

    def in_batches(
        self, size: int, seed: int, epoch: int, *, shuffle: bool = True, drop_last: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of an epoch, read in this process. Their order depends only on seed and epoch."""
        numbers = epoch_order(self.numbers, seed, epoch) if shuffle else self.numbers
        for images, labels in batches(self.prepared, numbers, size, drop_last=drop_last):
            yield torch.from_numpy(images), torch.from_numpy(labels)


class FetchedImages:
    """The images of a DataLoader's batch: one by one for its usual collation, or all at once by `batch`."""

    def __init__(self, images: PreparedImages, places: list[int]) -> None:
        self.images = images
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        return self.images[self.places[at]]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return (self.images[place] for place in self.places)

    def batch(self) -> tuple[Tensor, Tensor]:
        """Images and classes, each as one tensor."""
        numbers = self.images.numbers[self.places]
        prepared = self.images.prepared
        return torch.from_numpy(prepared.images[numbers]), torch.from_numpy(prepared.labels[numbers])
