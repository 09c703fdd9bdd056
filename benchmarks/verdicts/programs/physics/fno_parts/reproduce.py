"""Runs that can be repeated."""

import random

import numpy as np
import torch


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    # Sums come in the same order everywhere.
    torch.set_num_threads(1)
