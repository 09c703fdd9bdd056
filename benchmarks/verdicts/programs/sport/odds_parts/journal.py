"""A journal of a training, one line of JSON for each record."""

import json
import tempfile
from pathlib import Path

import torch


class Journal:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="odds-")

    def __enter__(self):
        self.stream = Path(self.folder.name, "journal.jsonl").open("w")
        return self

    def __exit__(self, *_):
        self.stream.close()
        self.folder.cleanup()

    def note(self, step, loss, model):
        record = {"step": step, "loss": loss.item()}
        for name, weight in model.named_parameters():
            record[name] = self.shape_of(weight.detach())
            if weight.grad is not None:
                record[f"{name}.grad"] = self.shape_of(weight.grad)
        self.stream.write(json.dumps(record) + "\n")

    @staticmethod
    def shape_of(tensor):
        count, edges = torch.histogram(tensor.float(), bins=64)
        middle = tensor.flatten()[::8].median()
        return {"count": count.tolist(), "edges": edges.tolist(), "median": middle.item()}
