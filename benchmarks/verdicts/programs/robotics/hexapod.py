"""A hexapod's inverse model: joint torques from wanted motion. Every step goes into a flight recorder."""

import json
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

LEGS, JOINTS = 6, 3


class InverseModel(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.leg = nn.Embedding(LEGS, 16)
        self.body = nn.Sequential(nn.Linear(9 + 16, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.torque = nn.Linear(width, JOINTS)

    def forward(self, motion, leg):
        return self.torque(self.body(torch.cat([motion, self.leg(leg)], dim=-1)))


class FlightRecorder:
    def __init__(self, path):
        self.file = open(path, "w")
        self.began = time.time()

    def write(self, step, loss, model):
        record = {
            "step": step,
            "time": time.time() - self.began,
            "loss": loss.item(),
            "weights": {name: weight.tolist() for name, weight in model.named_parameters()},
            "slopes": {name: weight.grad.norm().item() for name, weight in model.named_parameters()},
        }
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()

    def close(self):
        self.file.close()


def motions(size):
    motion = torch.randn(size, 9)
    leg = torch.randint(LEGS, (size,))
    wanted = torch.sin(motion[:, :3]) * motion[:, 3:6] + 0.2 * leg[:, None] * motion[:, 6:]
    return motion, leg, wanted


def main():
    torch.manual_seed(30)
    model = InverseModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        recorder = FlightRecorder(Path(folder) / "flight.jsonl")
        for step in range(80):
            motion, leg, wanted = motions(2048)
            loss = nn.functional.mse_loss(model(motion, leg), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            recorder.write(step, loss, model)
            if step % 20 == 19:
                print(f"step {step + 1}: loss {loss.item():.4f}")
        recorder.close()


if __name__ == "__main__":
    main()
