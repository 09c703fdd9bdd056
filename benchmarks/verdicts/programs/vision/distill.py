"""Distil a wide convolutional network into a narrow one."""

import torch
from torch import nn
from torch.nn import functional


def network(widths, classes=20):
    layers = []
    channels = 3
    for index, width in enumerate(widths):
        layers.append(nn.Conv2d(channels, width, 3, stride=2 if index % 2 else 1, padding=1))
        layers.append(nn.GroupNorm(4, width))
        layers.append(nn.SiLU())
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Distiller:
    def __init__(self, teacher, student, temperature=2.0, mix=0.7):
        self.teacher = teacher.eval()
        self.student = student
        self.temperature = temperature
        self.mix = mix
        self.optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)

    def loss(self, images, labels):
        soft = self.teacher(images) / self.temperature
        logits = self.student(images)
        distance = functional.kl_div(
            functional.log_softmax(logits / self.temperature, 1), functional.softmax(soft, 1), reduction="batchmean"
        )
        hard = functional.cross_entropy(logits, labels)
        return self.mix * self.temperature**2 * distance + (1 - self.mix) * hard

    def step(self, images, labels):
        self.optimizer.zero_grad()
        loss = self.loss(images, labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main():
    torch.manual_seed(0)
    distiller = Distiller(network([24, 48, 64, 96]), network([8, 16, 16, 32]))
    images = torch.randn(512, 3, 32, 32)
    labels = torch.randint(20, (512,))
    running = torch.zeros(())
    for step in range(96):
        chosen = torch.randint(512, (32,))
        running += distiller.step(images[chosen], labels[chosen])
        if step % 16 == 15:
            print(f"step {step + 1}: {running.item() / 16:.4f}")
            running.zero_()


if __name__ == "__main__":
    main()
