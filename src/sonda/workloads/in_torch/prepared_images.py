"""A prepared data set as PyTorch sees it: a Dataset for any DataLoader, and batches without one.

Images stay mapped: what is not touched is not read, and processes that load share the same pages.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from sonda.workloads.data.prepared import Prepared, batches, epoch_order


class PreparedImages(Dataset[tuple[Tensor, Tensor]]):
    """Some images of a prepared data set (`numbers`, such as a share of `split`; all unless given).

    A DataLoader asks for whole batches through `__getitems__`; with `collate_fn=PreparedImages.together` they are taken
    from the file in one go, and nothing is stacked image by image.
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

    def __getitems__(self, places: list[int]) -> Taken:
        return Taken(self, places)

    @staticmethod
    def together(taken: Taken) -> tuple[Tensor, Tensor]:
        """Images and classes of a batch, as a DataLoader's `collate_fn`."""
        return taken.batch()

    def in_batches(
        self, size: int, seed: int, epoch: int, *, shuffle: bool = True, drop_last: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of an epoch in this process: the order depends on seed and epoch alone."""
        numbers = epoch_order(self.numbers, seed, epoch) if shuffle else self.numbers
        for images, labels in batches(self.prepared, numbers, size, drop_last=drop_last):
            yield torch.from_numpy(images), torch.from_numpy(labels)


class Taken:
    """Images that a DataLoader asked for: one by one for its usual collation, or all at once."""

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
        numbers = self.images.numbers[self.places]
        prepared = self.images.prepared
        return torch.from_numpy(prepared.images[numbers]), torch.from_numpy(prepared.labels[numbers])
