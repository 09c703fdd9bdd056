"""Simulated spectra of stars: a black body with absorption lines, seen by a noisy spectrograph."""

import numpy as np

LINES = (4102.0, 4341.0, 4861.0, 5890.0, 6563.0)


class Archive:
    def __init__(self, pixels=1024, seed=17):
        self.random = np.random.default_rng(seed)
        self.wave = np.linspace(3800.0, 6900.0, pixels)

    def draw(self, stars):
        """Flux, and temperature, gravity and metallicity in units of their spread."""
        label = self.random.normal(size=(stars, 3))
        heat = 5800.0 + 900.0 * label[:, :1]
        flux = self.wave**-5 / np.expm1(1.4388e8 / (self.wave * heat))
        flux /= flux.mean(axis=1, keepdims=True)
        for number, line in enumerate(LINES):
            depth = 0.3 + 0.1 * label[:, 1 + number % 2, None]
            flux *= 1.0 - depth * np.exp(-0.5 * ((self.wave - line) / 9.0) ** 2)
        return flux + self.random.normal(scale=0.02, size=flux.shape), label
