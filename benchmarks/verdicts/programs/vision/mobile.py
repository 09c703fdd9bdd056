"""Run a network for telephones, with depthwise convolutions, over a folder of thumbnails."""

import torch
from torch import nn


class Separable(nn.Module):
    """A depthwise convolution followed by a pointwise one."""

    def __init__(self, inputs, outputs, stride=1, kernel=5):
        super().__init__()
        self.depthwise = nn.Conv2d(inputs, inputs, kernel, stride=stride, padding=kernel // 2, groups=inputs)
        self.pointwise = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x):
        return nn.functional.relu6(self.pointwise(nn.functional.relu6(self.depthwise(x))))


class Mobile(nn.Module):
    def __init__(self, classes=30):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(
            Separable(32, 64),
            Separable(64, 64),
            Separable(64, 96, stride=2),
            Separable(96, 96),
            Separable(96, 96),
            Separable(96, 128, stride=2),
        )
        self.head = nn.Linear(128, classes)

    def forward(self, images):
        return self.head(self.blocks(torch.relu(self.stem(images))).mean(dim=(2, 3)))


def thumbnails(batches, batch=16, side=96):
    generator = torch.Generator().manual_seed(0)
    for _ in range(batches):
        yield torch.rand(batch, 3, side, side, generator=generator)


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = Mobile().eval()
    counts = torch.zeros(30, dtype=torch.long)
    for images in thumbnails(60):
        labels = model(images).argmax(1)
        counts += torch.bincount(labels, minlength=30)
    print("most frequent", counts.topk(3).indices.tolist(), "of", int(counts.sum()))


if __name__ == "__main__":
    main()
