"""How tables are written and read: whole or not at all, in blocks, joined, sorted."""
