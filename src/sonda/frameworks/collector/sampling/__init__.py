"""Which steps are counted, seen in detail, or read for waits."""
