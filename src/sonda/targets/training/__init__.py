"""Training by epochs with checkpoints: the process that trains and the one that watches it."""
