"""The six operations once each between cudaProfilerStart and Stop, for Nsight Compute: `python ops.py SIDE`."""

import sys

import torch

side = int(sys.argv[1])
torch.backends.cuda.matmul.allow_tf32 = False
a = torch.randn(side, side, device="cuda")
b = torch.randn(side, side, device="cuda")
operations = (
    lambda: a + b,
    lambda: a * b,
    lambda: a @ b,
    lambda: 2.5 * a,
    lambda: torch.sigmoid(a),
    lambda: torch.tanh(a),
)
for operation in operations:
    operation()
torch.cuda.synchronize()
print('program output, with a comma and "quotes"')
torch.cuda.cudart().cudaProfilerStart()
for operation in operations:
    operation()
torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStop()
