"""What lies behind an engine: buffers, DRAM, reuse, the time that operands take."""
