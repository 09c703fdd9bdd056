"""What all readers of timelines share: raw events, sorting on disk, marks, devices, ranks."""
