"""A PyTensor program as its users write it: two epochs of a training function and of a test function.

Arguments: the mode that functions are compiled in, and `short` for the test function alone.
"""

import hashlib
import sys

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor import function

mode, short = sys.argv[1], "short" in sys.argv[2:]
drawn = np.random.default_rng(0)
x, y = pt.matrix("x"), pt.matrix("y")
weight = pytensor.shared(drawn.standard_normal((6, 4)), "weight")
bias = pytensor.shared(np.zeros(4), "bias")
output = pt.sigmoid(x @ weight + bias)
inputs, targets = drawn.standard_normal((8, 6)), drawn.random((8, 4))
test = function([x], output, name="test", mode=mode)
if not short:
    loss = pt.mean((output - y) ** 2)
    slopes = pytensor.grad(loss, [weight, bias])
    updates = [(one, one - 0.5 * slope) for one, slope in zip((weight, bias), slopes, strict=True)]
    train = function([x, y], loss, updates=updates, name="train", mode=mode)
    generator = pt.random.shared_rng(seed=1)
    following, noise = generator.normal()
    draw = function([], noise, updates={generator: following}, mode=mode)
    try:
        test("no matrix")
    except ValueError:
        print("refused")
for _ in range(2):
    if not short:
        for _ in range(5):
            print(float(train(inputs, targets)))
    for _ in range(2):
        print(test(inputs).sum())
if not short:
    print(float(draw()))
print(hashlib.sha256(weight.get_value().tobytes()).hexdigest(), test.__class__.__call__.__name__)
