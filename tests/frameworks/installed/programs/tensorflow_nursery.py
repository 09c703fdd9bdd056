"""Runs programs in forked children of one process that has TensorFlow in memory already: no import to wait for.

A JSON object per line on stdin: `program`, `arguments`, `output`, and `settings` where it is to be observed.
A line per program on stdout: its wait status. Nothing is computed before the fork: TensorFlow's threads begin after it.
"""

import atexit
import importlib.machinery
import importlib.util
import json
import os
import runpy
import signal
import sys
import threading
import traceback

import keras
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(HERE))))
FRAMEWORKS = os.path.join(ROOT, "src", "sonda", "frameworks")


def load_collector():
    spec = importlib.machinery.ModuleSpec("_sonda", None, is_package=True)
    spec.submodule_search_locations = [FRAMEWORKS]
    sys.modules["_sonda"] = importlib.util.module_from_spec(spec)


def become(order):
    signal.alarm(600)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if order.get("settings"):
        from _sonda.tensorflow.observe.keras import observe_keras
        from _sonda.tensorflow.observe.observer import observe_tensorflow

        if order["settings"].get("as_on_gpu"):
            from _sonda.tensorflow.observe import devices

            devices.gpus = lambda tf: ["GPU:0"]
            devices.describe_gpu = lambda tf, number: {"name": "Example"}
        observe_tensorflow(tf, order["settings"])
        observe_keras(keras, order["settings"])
    sys.argv = [order["program"], *order["arguments"]]
    sys.path[0] = HERE
    try:
        runpy.run_path(order["program"], run_name="__main__")
    except SystemExit as leaving:
        return leaving.code or 0
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        return 1
    return 0


def main():
    leave = os._exit
    load_collector()
    while True:
        # readline, not iteration: the child must not inherit orders that were read ahead.
        line = sys.stdin.readline()
        if not line:
            return
        order = json.loads(line)
        child = os.fork()
        if not child:
            code = become(order)
            threading._shutdown()
            atexit._run_exitfuncs()
            sys.stdout.flush()
            leave(code)
        _, status = os.waitpid(child, 0)
        print(status, flush=True)


main()
