"""What this machine can do at best: arithmetic and bandwidth of processor and GPU, measured."""
