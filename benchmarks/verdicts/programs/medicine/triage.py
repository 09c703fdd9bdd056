"""Urgency of patients at a clinic's door, from vital signs: an ordinal model with two hidden layers."""

import torch
from torch import nn
from triage_kit.trail import Trail


class Ordinal(nn.Module):
    """One score and increasing cuts between the grades of urgency."""

    def __init__(self, inputs, grades, width=384):
        super().__init__()
        self.score = nn.Sequential(
            nn.Linear(inputs, width), nn.ELU(), nn.Linear(width, width), nn.ELU(), nn.Linear(width, 1)
        )
        self.cuts = nn.Parameter(torch.linspace(-1, 1, grades - 1))

    def forward(self, vitals):
        return self.score(vitals) - self.cuts


class Clinic:
    def __init__(self, patients=20_000, inputs=60, grades=5):
        self.grades = grades
        self.vitals = torch.randn(patients, inputs)
        latent = self.vitals[:, :6].sum(1) + 0.3 * torch.randn(patients)
        self.urgency = torch.bucketize(latent, torch.tensor([-3.0, -1.0, 1.0, 3.0]))

    def batch(self, size):
        patients = torch.randint(len(self.vitals), (size,))
        above = self.urgency[patients, None] > torch.arange(self.grades - 1)
        return patients, self.vitals[patients], above.float()


def main():
    torch.manual_seed(4)
    clinic, trail = Clinic(), Trail()
    model = Ordinal(60, clinic.grades)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(90):
        patients, vitals, above = clinic.batch(1024)
        loss = nn.functional.binary_cross_entropy_with_logits(model(vitals), above)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trail.note(step, patients)
        if step % 30 == 29:
            print(f"step {step + 1}: loss {loss.item():.4f}, {len(trail.entries)} seals")


if __name__ == "__main__":
    main()
