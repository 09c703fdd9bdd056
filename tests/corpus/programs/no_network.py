"""A program without any network."""

import time

begin = time.process_time()
while time.process_time() - begin < 0.5:
    sum(range(1000))
