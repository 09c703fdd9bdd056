"""Many designs of an accelerator at once, for explorations."""
