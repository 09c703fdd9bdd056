"""`python -m sonda` is `sonda`."""

from sonda.cli import main

main()
