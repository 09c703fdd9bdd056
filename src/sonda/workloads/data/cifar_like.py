"""Synthetic images like CIFAR-10's: 32 x 32 pixels, three colours, ten classes that can be told apart."""

from __future__ import annotations

import numpy as np

from sonda.version import VERSION
from sonda.workloads.data.cifar import SIDE
from sonda.workloads.data.source import ArraySource

CIFAR_LIKE = "cifar10-like"
"""The word that stands for them where a folder could be named."""
CLASSES = 10
COUNT = 5_000
"""A tenth of CIFAR-10's training images: 15 MB."""
NOISE = 64
"""Range of the noise: a value moves by up to half of this, up or down."""


def cifar_like(count: int = COUNT, seed: int = 0) -> ArraySource:
    """`count` images, uint8. Each class is a grating with its own direction, pitch and colour. Images of a class differ
    in phase and noise."""
    random = np.random.default_rng((seed, count))
    labels = np.arange(count, dtype=np.int64) % CLASSES
    down, across = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    kind = np.arange(CLASSES)
    angle = np.pi * kind / CLASSES
    pitch = 4.0 + kind % 3
    waves = (np.cos(angle)[:, None, None] * across + np.sin(angle)[:, None, None] * down) / pitch[:, None, None]
    colours = 0.5 + 0.5 * np.stack([np.cos(2.1 * kind), np.cos(2.1 * kind + 2), np.cos(2.1 * kind + 4)], axis=1)
    phase = random.random(count, dtype=np.float32) * np.float32(2 * np.pi)
    images = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for number in range(CLASSES):
        members = np.flatnonzero(labels == number)
        stripes = 0.5 + 0.5 * np.sin(2 * np.pi * waves[number] + phase[members, None, None])
        clean = 32 + 160 * stripes[..., None] * colours[number]
        noise = random.integers(NOISE, size=(len(members), SIDE, SIDE, 3), dtype=np.int16)
        images[members] = np.clip(clean + (noise - NOISE // 2), 0, 255).astype(np.uint8)
    return ArraySource(
        layout="cifar10", name=CIFAR_LIKE, classes=tuple(f"grating {number}" for number in range(CLASSES)),
        labels=labels, parts=(("train", count),), images=[images],
        origin={"drawn by": f"sonda {VERSION}", "seed": str(seed), "count": str(count)},
    )  # fmt: skip
