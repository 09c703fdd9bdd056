"""Instructions and cache misses as valgrind models them."""
