"""Which operation runs on which engine with which tiles: rules and searches."""
