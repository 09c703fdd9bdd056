"""Five calls of a jitted function under JAX's profiler, and what XLA made of it: `python jax_graph.py PROGRAM OUT`.

PROGRAM is `jax_mlp` or `jax_scan`, beside this file. Left in OUT: the profile, and `PROGRAM.hlo.txt`.
"""

import sys
from pathlib import Path

import jax

name, out = sys.argv[1], sys.argv[2]
jit, calls = jax.jit, 0


def observed(function):
    compiled = jit(function)

    def call(*arguments):
        global calls
        calls += 1
        if calls == 12:
            text = compiled.lower(*arguments).compile().as_text()
            Path(out, f"{name}.hlo.txt").write_text(text)
            jax.profiler.start_trace(f"{out}/{name}")
        result = jax.block_until_ready(compiled(*arguments))
        if calls == 16:
            jax.profiler.stop_trace()
        return result

    return call


jax.jit = observed
program = Path(__file__).with_name(f"{name}.py")
exec(compile(program.read_text(), program.name, "exec"), {"__name__": "__main__"})
