"""Programs that share a machine: they begin and end windows together."""
