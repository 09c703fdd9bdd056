"""Sort pictures of a gallery into albums with a trained network; nothing is learnt here."""

from collections import Counter

import torch
from gallery_parts.prediction import Prediction
from torch import nn


def backbone(classes=12):
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 96, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, classes),
    )


def pictures(batches, batch=16):
    generator = torch.Generator().manual_seed(3)
    for _ in range(batches):
        yield torch.rand(batch, 3, 64, 64, generator=generator)


@torch.inference_mode()
def sort(model, source, least=0.086):
    albums = Counter()
    unsure = 0
    for images in source:
        prediction = Prediction(model, images)
        for label, confidence in zip(prediction.labels.tolist(), prediction.confidence.tolist(), strict=True):
            if confidence < least:
                unsure += 1
            else:
                albums[label] += 1
    return albums, unsure


if __name__ == "__main__":
    torch.manual_seed(0)
    model = backbone().eval()
    albums, unsure = sort(model, pictures(110))
    print("albums", dict(albums.most_common(5)), "unsure", unsure)
