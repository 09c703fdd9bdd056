"""A small network that a library, named by the first argument, trains for two epochs of four batches."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

LIBRARY, *GIVEN = sys.argv[1:]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x, labels=None):
        out = self.fc2(torch.relu(self.fc1(x)))
        return out if labels is None else {"loss": F.cross_entropy(out, labels), "logits": out}


class Rows(Dataset):
    def __init__(self, count):
        self.x, self.y = torch.randn(count, 6), torch.randint(3, (count,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "labels": self.y[index]}


def loader(count):
    return DataLoader(TensorDataset(torch.randn(count, 6), torch.randint(3, (count,))), batch_size=4)


def lightning():
    import lightning as library

    class Lit(library.LightningModule):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 3)

        def compute(self, batch):
            return F.cross_entropy(self.fc2(torch.relu(self.fc1(batch[0]))), batch[1])

        def training_step(self, batch, number):
            return self.compute(batch)

        def validation_step(self, batch, number):
            self.log("loss", self.compute(batch))

        def test_step(self, batch, number):
            self.compute(batch)

        def predict_step(self, batch, number):
            return self.compute(batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    strategy = {"strategy": "ddp", "devices": 1} if "ddp" in GIVEN else {}
    trainer = library.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, **strategy
    )
    model = Lit()
    trainer.fit(model, loader(16), loader(8))
    for name in ("validate", "test", "predict"):
        if name in GIVEN:
            getattr(trainer, name)(model, loader(8))


def by_hand(prepare, backward):
    model = Net()
    model, optimizer, train, held = prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader(16), loader(8))

    def evaluate():
        model.eval()
        with torch.no_grad():
            for x, _ in held:
                model(x)

    for _ in range(2):
        model.train()
        for x, y in train:
            backward(F.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
        evaluate()
    return evaluate


def fabric():
    from lightning.fabric import Fabric

    made = Fabric(accelerator="cpu", devices=1)
    made.launch()

    def prepare(model, optimizer, *loaders):
        return *made.setup(model, optimizer), *made.setup_dataloaders(*loaders)

    by_hand(prepare, made.backward)


def accelerate():
    from accelerate import Accelerator

    made = Accelerator(cpu=True, **({"dynamo_backend": "aot_eager"} if "compiled" in GIVEN else {}))
    by_hand(made.prepare, made.backward)()


def transformers():
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=GIVEN[-1], num_train_epochs=2, per_device_train_batch_size=4, per_device_eval_batch_size=4,
        eval_strategy=GIVEN[0], save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model=Net(), args=arguments, train_dataset=Rows(16), eval_dataset=Rows(8))
    trainer.train()
    if "evaluate" in GIVEN:
        trainer.evaluate()
    if "predict" in GIVEN:
        trainer.predict(Rows(8))


torch.manual_seed(0)
globals()[LIBRARY]()
