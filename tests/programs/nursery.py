"""Runs programs in forked children of one process that has PyTorch in memory already: no import to wait for.

A JSON object per line on stdin: `program`, `arguments`, `output`, and `settings` where it is to be observed.
A line per program on stdout: its wait status. The child ends like any interpreter, short of freeing its memory.
"""

import atexit
import gc
import importlib
import importlib.machinery
import importlib.util
import json
import os
import runpy
import signal
import sys
import threading
import traceback

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
SUPPORT = os.path.join(os.path.dirname(HERE), "support")
FRAMEWORKS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "src", "sonda", "frameworks")


def load_torch():
    sys.path.append(SUPPORT)
    for name in importlib.import_module("torch_modules").MODULES:
        importlib.import_module(name)
    sys.path.pop()


def load_collector():
    spec = importlib.machinery.ModuleSpec("_sonda", None, is_package=True)
    spec.submodule_search_locations = [FRAMEWORKS]
    sys.modules["_sonda"] = importlib.util.module_from_spec(spec)


def become(order):
    signal.alarm(240)
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if order.get("settings"):
        from _sonda.torch.observe.observer import observe_torch

        observe_torch(torch, order["settings"])
        await_others(order["settings"])
    sys.argv = [order["program"], *order["arguments"]]
    sys.path[0] = os.path.dirname(order["program"])
    try:
        runpy.run_path(order["program"], run_name="__main__")
    except SystemExit as leaving:
        return leaving.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def await_others(settings):
    """Have frameworks that the program imports itself observed, as an injected collector has."""
    from _sonda.collector.start import _ImportWaiter

    waiter = _ImportWaiter(settings)
    del waiter.awaited["torch"]
    sys.meta_path.insert(0, waiter)


def warm_up():
    """What every first optimizer does; without a backward, after which PyTorch refuses to work in a forked child."""
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    optimizer.step()
    optimizer.zero_grad()


def main():
    leave = os._exit
    load_torch()
    load_collector()
    warm_up()
    gc.freeze()
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
