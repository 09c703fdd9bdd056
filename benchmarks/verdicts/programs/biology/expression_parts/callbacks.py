"""What happens beside the training."""

import collections
import copy
import math


class Progress:
    def __init__(self, every):
        self.every = every

    def after_step(self, trainer):
        if trainer.step % self.every == 0:
            print(f"step {trainer.step}: {trainer.loss:.4f}")


class SafetyNet:
    """Goes back to where all was well once the loss is not a number."""

    def __init__(self, depth=3):
        self.past = collections.deque(maxlen=depth)

    def after_step(self, trainer):
        if math.isfinite(trainer.loss):
            here = {name: part for name, part in vars(trainer).items() if name != "callbacks"}
            self.past.append(copy.deepcopy(here))
            return
        vars(trainer).update(self.past[0])
