"""Known work, counted by every probe: whether their counts can be trusted."""
