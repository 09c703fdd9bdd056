"""`sonda.profile()` around Keras, TensorFlow, JAX and PyTensor: what was made before it is seen too, or named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

KERAS = """
import keras
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32), keras.layers.Dense(4)])
model.compile("sgd", "mse")
x, y = np.random.rand(64, 16).astype("float32"), np.random.rand(64, 4).astype("float32")
def work():
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
"""
JAX = """
import jax
from jax import jit, value_and_grad
import jax.numpy as jnp
def update(w, x):
    loss, gradient = value_and_grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w)
    return w - 0.01 * gradient
w, x = jnp.ones((8, 4)), jnp.ones((2, 8))
{made}
def work():
    global w
    {inside}
    for _ in range(16):
        w = {call}(w, x)
"""
TENSORFLOW = """
import tensorflow as tf
w, x = tf.Variable(tf.ones((8, 4))), tf.ones((2, 8))
@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.tanh(x @ w) ** 2)
    w.assign_sub(0.01 * tape.gradient(loss, w))
step()
def work():
    for _ in range(16):
        step()
"""
PYTENSOR = """
import pytensor, pytensor.tensor as pt
w, x = pytensor.shared(np.ones((8, 4))), pt.matrix("x")
loss = (pt.tanh(x @ w) ** 2).sum()
step = pytensor.function([x], loss, updates=[(w, w - 0.01 * pytensor.grad(loss, w))])
step(np.ones((2, 8)))
def work():
    for _ in range(16):
        step(np.ones((2, 8)))
"""
SHOW = """
import json, warnings
import sonda
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    with sonda.profile(store=STORE) as run:
        work()
document = run.to_document()
ADDED = run.info.workload.framework != "torch"  # elsewhere a step that holds the counts stands beside those that ran
spans = run.spans
print(json.dumps({
    "framework": run.info.workload.framework,
    "steps": int((spans.where(kind="step") & ~(spans.words("pass").equal("count") & ADDED)).sum()),
    "parts": [part["name"] for part in document["parts"]],
    "phases": [phase["name"] for part in document["parts"] for phase in part["phases"]],
    "warned": [str(entry.message) for entry in warned if "sonda" in str(entry.message)],
    "notes": run.info.notes,
}))
"""


def observed(program: str, tmp_path: Path, **environment: str) -> dict[str, Any]:
    """What a block of the program was seen to do."""
    script = tmp_path / "notebook.py"
    script.write_text(f"import numpy as np\nSTORE = {str(tmp_path / 'store')!r}\n{program}\n{SHOW}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=600, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_fit_of_keras_is_seen(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("keras")
    pytest.importorskip(backend)
    seen = observed(KERAS, tmp_path, KERAS_BACKEND=backend)
    assert seen["framework"] == backend
    assert seen["steps"] == 16 and seen["parts"] == ["train"]  # 64 samples in eights, twice
    assert seen["warned"] == []


@pytest.mark.parametrize("made", ["before", "before, and called", "inside"])
def test_a_jitted_function_of_a_module_is_seen_wherever_it_was_made(made: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    before = "step = jit(update)" + ("; step(w, x)" if made == "before, and called" else "")
    program = (
        JAX.format(made="", inside="step = jit(update)", call="step")
        if made == "inside"
        else JAX.format(made=before, inside="pass", call="step")
    )
    seen = observed(program + "\nkept = globals().get('step')", tmp_path)
    assert seen["framework"] == "jax"
    assert seen["steps"] == 16 and seen["parts"] == ["train"] and "fused" in seen["phases"]
    assert seen["warned"] == []


def test_a_function_that_cannot_be_seen_is_named_as_the_block_begins(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    program = JAX.format(made="held = [jit(update)]; held[0](w, x)", inside="pass", call="held[0]")
    seen = observed(program, tmp_path)
    told = "sonda.profile() does not see update: jax.jit made them before the block"
    assert [text.startswith(told) for text in seen["warned"]] == [True]
    assert any(note.startswith(told) for note in seen["notes"])
    assert seen["steps"] == 0


@pytest.mark.parametrize(("framework", "program"), [("tensorflow", TENSORFLOW), ("pytensor", PYTENSOR)])
def test_functions_made_and_called_before_are_seen(framework: str, program: str, tmp_path: Path) -> None:
    pytest.importorskip(framework)
    seen = observed(program, tmp_path)
    assert seen["framework"] == framework
    assert seen["steps"] == 16 and seen["parts"] == ["train"] and "fused" in seen["phases"]


def test_a_framework_that_the_block_imports_is_seen(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    body = JAX.format(made="step = jit(update)", inside="pass", call="step")
    program = "def work():\n    space = {}\n    exec(BODY, space)\n    space['work']()\n"
    seen = observed(f"BODY = {body!r}\n{program}", tmp_path)
    assert seen["steps"] == 16 and seen["warned"] == []


def test_two_blocks_leave_functions_as_they_were(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    program = JAX.format(made="step = jit(update); kept = step", inside="pass", call="step")
    first = "import sonda\nwith sonda.profile(store=STORE):\n    work()\nassert step is kept and jit is jax.jit\n"
    assert observed(program + first, tmp_path)["steps"] == 16
