"""Runner identification from motion capture: a recurrent cell with a forget bias, in the manner of a paper."""

import torch
from torch import nn


class GaitCell(nn.Module):
    def __init__(self, inputs: int, size: int, forget_bias: float = 1.0):
        super().__init__()
        self.size = size
        self.wx = nn.Linear(inputs, 4 * size)
        self.wh = nn.Linear(size, 4 * size, bias=False)
        with torch.no_grad():
            self.wx.bias[size : 2 * size].fill_(forget_bias)

    def forward(self, frame, state):
        hidden, cell = state
        i, f, g, o = (self.wx(frame) + self.wh(hidden)).chunk(4, dim=-1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(cell), cell


class Runner(nn.Module):
    def __init__(self, joints=17, size=160, people=30):
        super().__init__()
        self.cell = GaitCell(3 * joints, size)
        self.who = nn.Linear(size, people)

    def forward(self, motion):
        hidden = motion.new_zeros(len(motion), self.cell.size)
        state = hidden, hidden
        for frame in motion.unbind(1):
            state = self.cell(frame, state)
        return self.who(state[0])


def capture(people, frames, joints, clips):
    who = torch.randint(people, (clips,))
    pace = (0.05 + 0.01 * who.float())[:, None, None]
    time = torch.arange(frames)[None, :, None]
    motion = torch.sin(pace * time + torch.arange(3 * joints) * 0.2)
    return motion + 0.1 * torch.randn(clips, frames, 3 * joints), who


def main():
    torch.manual_seed(9)
    motion, who = capture(people=30, frames=150, joints=17, clips=416)
    model = Runner()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for start in range(0, len(motion), 32):
            scores = model(motion[start : start + 32])
            loss = nn.functional.cross_entropy(scores, who[start : start + 32], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
