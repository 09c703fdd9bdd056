"""Detect marks in frames of a camera: a small single-shot detector, run over a recording."""

import torch
from detector_parts.pace import frame_clock
from torch import nn


class Detector(nn.Module):
    """Scores and boxes on a coarse grid."""

    def __init__(self, anchors=3):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 48, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.scores = nn.Conv2d(48, anchors, 1)
        self.boxes = nn.Conv2d(48, 4 * anchors, 1)

    def forward(self, frames):
        features = self.stem(frames)
        scores = self.scores(features).flatten(1)
        boxes = self.boxes(features).flatten(2).view(len(frames), 4, -1)
        return scores, boxes


def recording(frames, generator):
    for _ in range(frames):
        yield torch.rand(4, 3, 160, 160, generator=generator)


@torch.inference_mode()
def detect(model, frames):
    found = 0
    strongest = 0.0
    for number, frame in enumerate(frames):
        with frame_clock(number):
            scores, boxes = model(frame)
            top, where = scores.sigmoid().topk(8, dim=1)
            kept = boxes.gather(2, where.unsqueeze(1).expand(-1, 4, -1))
            found += int((top > 0.5).sum())
            strongest = max(strongest, kept.abs().max().item())
    return found, strongest


if __name__ == "__main__":
    torch.manual_seed(0)
    found, strongest = detect(Detector().eval(), recording(120, torch.Generator().manual_seed(4)))
    print(f"{found} detections, largest offset {strongest:.3f}")
