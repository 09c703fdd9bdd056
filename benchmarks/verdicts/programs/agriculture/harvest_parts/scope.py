"""What surrounds each step: time, progress, and tidiness on the small computers of the growers."""

import gc
import time


class StepScope:
    def __init__(self, name, report=20):
        self.name = name
        self.report = report
        self.steps = 0
        self.seconds = 0.0

    def __enter__(self):
        self.began = time.perf_counter()
        return self

    def __exit__(self, kind, error, trace):
        self.steps += 1
        gc.collect()
        self.seconds += time.perf_counter() - self.began
        if self.steps % self.report == 0 and kind is None:
            print(f"{self.name}: {self.steps} steps")
        return False
