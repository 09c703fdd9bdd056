"""The version, in a file of its own so that building the package imports nothing else."""

VERSION = "0.1.0"
