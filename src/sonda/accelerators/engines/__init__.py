"""One engine per kind of accelerator. Each is a function of hardware, operation and mapping that returns a Result."""
