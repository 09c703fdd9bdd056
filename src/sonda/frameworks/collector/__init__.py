"""What runs inside the observed program: standard library and the framework, nothing else of Sonda's.

The user's interpreter may have neither Sonda nor numpy: this package imports nothing of theirs and is loaded by path.

* `recorder` appends events to one file per process;
* `torch_observer` makes PyTorch announce its phases and layers, `tensorflow_observer`, `keras_observer`,
  `jax_observer` and `pytensor_observer` theirs;
* `counter` sees the operations of one step, with `formulas` and `memory`;
* `start` is what the injected `sitecustomize` calls.
"""
