"""Recordings on disk."""

import wave

import numpy as np
import torch
from torch.utils.data import Dataset

RATE = 16_000


def record(folder, recordings, kinds):
    """Write a second of sound for each recording; files and kinds."""
    chance = np.random.default_rng(5)
    time = np.arange(RATE) / RATE
    found = []
    for number in range(recordings):
        kind = number % kinds
        pitch = chance.uniform(110, 440)
        tones = sum(np.sin(2 * np.pi * pitch * (k + 1) * time) / (1 + abs(k - kind)) for k in range(8))
        sound = tones / 8 + 0.05 * chance.standard_normal(RATE)
        path = folder / f"{number:04d}.wav"
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
        found.append((path, kind))
    return found


class Recording:
    """A file whose spectrum is taken when somebody asks for it."""

    def __init__(self, path):
        self.path = path

    @property
    def spectrum(self):
        with wave.open(str(self.path), "rb") as file:
            sound = np.frombuffer(file.readframes(RATE), dtype="<i2") / 32768
        frames = np.lib.stride_tricks.sliding_window_view(sound, 1024)[::16] * np.hanning(1024)
        power = np.abs(np.fft.rfft(frames)) ** 2
        level = np.log(power[:, :128].mean(axis=0) + 1e-6), np.log(power[:, :128].max(axis=0) + 1e-6)
        return torch.from_numpy(np.concatenate(level).astype(np.float32))


class Shelf(Dataset):
    def __init__(self, found):
        self.recordings = [Recording(path) for path, _ in found]
        self.kinds = [kind for _, kind in found]

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, row):
        return self.recordings[row].spectrum, self.kinds[row]
