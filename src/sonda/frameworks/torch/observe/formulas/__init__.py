"""FLOPs and bytes of ATen's operations."""
