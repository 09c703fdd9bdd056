"""A workload of one's own: an autoencoder, `sonda run autoencoder --width 32`."""

from sonda.record.errors import SondaError


class Autoencoder:
    """What runs, as a description: cheap to make, without PyTorch."""

    name = "autoencoder"

    def __init__(self, options: dict[str, str]) -> None:
        known = {"batch": 64, "width": 16}
        self.sizes = known | {key: int(text) for key, text in options.items() if key in known}
        if unknown := set(options) - set(known):
            raise SondaError(f"autoencoder has no option {unknown.pop()!r}", f"known: {', '.join(known)}")

    def parameters(self) -> dict[str, int]:
        return self.sizes

    def build(self, framework: str, train: bool, seed: int) -> "Task":
        return Task(self.sizes["batch"], self.sizes["width"], train, seed)


class Task:
    """The same made ready in PyTorch: model, data, loss, optimizer."""

    tokens, phase_tokens = 0, {}

    def __init__(self, batch: int, width: int, train: bool, seed: int) -> None:
        import torch
        from torch import nn

        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 784)).train(train)
        self.inputs, self.samples = (torch.rand(batch, 784),), batch
        self.optimizer = lambda: torch.optim.Adam(self.model.parameters())
        self.loss = nn.functional.mse_loss

    def infer(self, mark):
        import torch

        with torch.no_grad():
            return self.model(*self.inputs)

    def batches(self, workers, pin=False, prefetch=None):
        while True:
            yield self.inputs, self.inputs[0]
