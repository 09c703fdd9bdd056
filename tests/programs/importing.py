"""Imports that fail, go in circles, wait for each other and warn, with everything that Python says of them."""

import importlib
import importlib.machinery
import sys
import threading
import traceback
import warnings

sys.path.insert(0, sys.argv[1])
warnings.simplefilter("always")


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "finder_fails":
            raise ZeroDivisionError("in a finder")
        if name == "finder_refuses":
            raise ImportError("a finder refuses")
        return importlib.machinery.ModuleSpec(name, Loader()) if name == "loader_fails" else None


class Loader:
    def create_module(self, spec):
        raise KeyError("in a loader")

    def exec_module(self, module):
        pass


def attempt(name):
    try:
        importlib.import_module(name)
        print(name, "is there")
    except BaseException:
        traceback.print_exc(file=sys.stdout)


def told(name):
    try:
        importlib.import_module(name)
        answers.append("is there")
    except BaseException as error:
        answers.append(type(error).__name__)


def deep(depth):
    if depth:
        deep(depth - 1)
    else:
        import failing_module  # noqa: F401


sys.meta_path.insert(0, Finder())
sys.modules["halted"] = None
for name in ("circle_one", "failing_module", "importing_failing", "not_there", "not_there.below", "bad_syntax",
             "circle_from", "finder_fails", "finder_refuses", "loader_fails", "halted", "warning_module"):  # fmt: skip
    attempt(name)
importlib.reload(sys.modules["warning_module"])
answers = []
threads = [threading.Thread(target=told, args=(name,)) for name in ("waits_one", "waits_two", "sqlite3", "decimal")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(answers))
try:
    deep(50)
except ValueError:
    traceback.print_exc(file=sys.stdout)
deep(0)
