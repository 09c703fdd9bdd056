"""The workloads in PyTorch. Imported only when one is built."""
