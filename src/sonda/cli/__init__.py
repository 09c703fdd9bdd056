"""The command line: one thin function per command. What they do is in the rooms; imports wait until they are needed."""

from __future__ import annotations

# Importing them adds their commands, in the order in which help lists them.
# isort: off
from sonda.cli import running as running, runs as runs, experiments as experiments, energy as energy
from sonda.cli import serving as serving, data as data, schema as schema
from sonda.cli.application import app as app, main as main
