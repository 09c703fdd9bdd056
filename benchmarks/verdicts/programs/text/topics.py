"""Topic classification of news items: TF-IDF-like inputs, a two-layer network, callbacks."""

import torch
from torch import nn


class Callback:
    def on_epoch_begin(self, trainer):
        pass

    def on_batch_end(self, trainer, scores, labels):
        pass

    def on_epoch_end(self, trainer):
        pass


class Progress(Callback):
    def on_epoch_end(self, trainer):
        print(f"epoch {trainer.epoch}: " + ", ".join(f"{k} {v:.3f}" for k, v in trainer.state.items()))


class ClassReport(Callback):
    """Keeps precision, recall and F1 of the running epoch."""

    def __init__(self, classes):
        self.classes = classes
        self.predicted = []
        self.actual = []

    def on_epoch_begin(self, trainer):
        self.predicted.clear()
        self.actual.clear()

    def on_batch_end(self, trainer, scores, labels):
        self.predicted.extend(scores.argmax(1).tolist())
        self.actual.extend(labels.tolist())
        trainer.state["f1"] = self.macro_f1()

    def macro_f1(self):
        values = []
        for c in range(self.classes):
            hits = sum(p == c and a == c for p, a in zip(self.predicted, self.actual, strict=True))
            found = self.predicted.count(c)
            there = self.actual.count(c)
            values.append(2 * hits / max(found + there, 1))
        return sum(values) / self.classes


class Trainer:
    def __init__(self, model, lr, callbacks):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.callbacks = callbacks
        self.state = {}
        self.epoch = 0

    def tell(self, event, *values):
        for callback in self.callbacks:
            getattr(callback, event)(self, *values)

    def fit(self, x, y, epochs, batch_size):
        for self.epoch in range(1, epochs + 1):
            self.tell("on_epoch_begin")
            for chosen in torch.randperm(len(x)).split(batch_size):
                scores = self.model(x[chosen])
                loss = nn.functional.cross_entropy(scores, y[chosen])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.tell("on_batch_end", scores.detach(), y[chosen])
            self.state["loss"] = loss.item()
            self.tell("on_epoch_end")


def main():
    torch.manual_seed(11)
    classes = 40
    topics = torch.rand(classes, 800) ** 8
    labels = torch.randint(classes, (5120,))
    inputs = torch.poisson(topics[labels] * 2).log1p()
    model = nn.Sequential(nn.Linear(800, 192), nn.ReLU(), nn.Dropout(0.3), nn.Linear(192, classes))
    Trainer(model, 1e-3, [ClassReport(classes), Progress()]).fit(inputs, labels, epochs=5, batch_size=128)


main()
