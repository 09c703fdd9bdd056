"""Never imports PyTorch."""

import sys

print(sum(range(10)), "torch" in sys.modules)
