"""A character model trained by a small trainer in the manner of larger libraries."""

import json
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn


@dataclass
class TrainingArguments:
    output_dir: str
    max_steps: int = 80
    batch_size: int = 4
    block: int = 12
    learning_rate: float = 1e-3
    logging_steps: int = 20
    save_steps: int = 1
    save_total_limit: int = 2


class CharModel(nn.Module):
    def __init__(self, symbols, width=512):
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.body = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, symbols)

    def forward(self, ids, labels):
        scores = self.out(self.body(self.embed(ids))[0])
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


class Trainer:
    def __init__(self, model, args, data):
        self.model, self.args, self.data = model, args, data
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
        self.log = []

    def get_batch(self):
        begin = torch.randint(len(self.data) - self.args.block - 1, (self.args.batch_size, 1))
        text = self.data[begin + torch.arange(self.args.block + 1)]
        return text[:, :-1], text[:, 1:]

    def save(self, step):
        folder = Path(self.args.output_dir) / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        torch.save(self.model.state_dict(), folder / "model.bin")
        torch.save(self.optimizer.state_dict(), folder / "optimizer.pt")
        (folder / "trainer_state.json").write_text(json.dumps({"step": step, "log": self.log, **asdict(self.args)}))
        kept = sorted(Path(self.args.output_dir).iterdir(), key=lambda path: int(path.name.split("-")[1]))
        for old in kept[: -self.args.save_total_limit]:
            shutil.rmtree(old)

    def train(self):
        for step in range(1, self.args.max_steps + 1):
            loss = self.model(*self.get_batch())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % self.args.logging_steps == 0:
                self.log.append({"step": step, "loss": loss.item()})
                print(self.log[-1])
            if step % self.args.save_steps == 0:
                self.save(step)


if __name__ == "__main__":
    torch.manual_seed(17)
    line = "an old silent pond a frog jumps into the pond splash silence again "
    symbols = sorted(set(line))
    text = torch.tensor([symbols.index(symbol) for symbol in line * 40])
    with tempfile.TemporaryDirectory() as name:
        Trainer(CharModel(len(symbols)), TrainingArguments(name), text).train()
