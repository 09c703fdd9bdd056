"""Grade the colours of footage: exposure, contrast, balance, saturation, lift, for every frame."""

import torch


def footage(frames, height, width):
    generator = torch.Generator().manual_seed(0)
    still = torch.rand(3, height, width, generator=generator)
    for number in range(frames):
        yield torch.roll(still, number, dims=2)


class Grade:
    """A look, applied one adjustment after the other."""

    def __init__(self, exposure, contrast, balance, lift, fade):
        self.exposure = exposure
        self.contrast = contrast
        self.balance = torch.tensor(balance).view(3, 1, 1)
        self.lift = lift
        self.fade = fade

    def apply(self, frame):
        frame = frame * 2.0**self.exposure
        frame = frame - 0.5
        frame = frame * self.contrast
        frame = frame + 0.5
        frame = frame * self.balance
        frame = frame + self.lift
        frame = frame / (1.0 + self.lift)
        frame = frame * (1.0 - self.fade)
        frame = frame + 0.5 * self.fade
        frame = frame * 1.02
        frame = frame - 0.01
        return frame.clamp(0.0, 1.0)


def main():
    look = Grade(exposure=0.3, contrast=1.2, balance=[1.05, 1.0, 0.93], lift=0.03, fade=0.1)
    brightness = []
    for number, frame in enumerate(footage(frames=110, height=1080, width=1280)):
        graded = look.apply(frame)
        brightness.append(graded.mean())
        if number % 15 == 0:
            print(f"frame {number}: brightness {brightness[-1].item():.4f}")
    print(f"mean {torch.stack(brightness).mean().item():.4f}")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
