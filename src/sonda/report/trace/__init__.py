"""Runs as files for the viewers of other tools: Perfetto, Chrome, xprof."""
