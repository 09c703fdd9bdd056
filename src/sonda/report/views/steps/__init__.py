"""A run of steps: verdict, phases, layers, training, ranks."""
