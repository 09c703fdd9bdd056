"""What a line of code is for, as far as the functions that it calls tell: a table of names of libraries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from sonda.analysis.code.summary import Activity, Doing
from sonda.record.stacks import INTERPRETER

FRAMEWORKS = ("torch", "torchvision", "torchaudio", "tensorflow", "keras", "jax", "jaxlib", "pytensor")
"""Packages whose code is the network's work, and not the user's."""
LAYERS = ("torch.nn.modules", "keras.src.layers", "keras.layers")
"""Begins of the names of modules whose code calls layers."""
MODULES = {
    **dict.fromkeys(
        ("logging", "warnings", "csv", "tqdm", "tensorboard", "tensorboardX", "torch.utils.tensorboard", "wandb",
         "mlflow", "rich", "loguru", "pprint", "structlog", "sqlite3", "matplotlib", "pandas.io.formats"),
        Activity.LOG,
    ),
    **dict.fromkeys(("pickle", "torch.serialization", "safetensors", "joblib.numpy_pickle", "cloudpickle", "dill"),
                    Activity.CHECKPOINT),
    "copy": Activity.COPY,
    **dict.fromkeys(("PIL", "cv2", "imageio", "soundfile", "gzip", "zipfile", "bz2", "lzma", "tarfile", "h5py",
                     "pandas.io", "_compression", "torchvision.io", "torchaudio.io"), Activity.INPUT),
}  # fmt: skip
"""By package or module: what calling it is for."""
FUNCTIONS = {
    **dict.fromkeys(("json.dump", "json.dumps", "yaml.dump", "os.fsync", "os.write"), Activity.LOG),
    **dict.fromkeys(("numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.savetxt", "np.save", "np.savez",
                     "np.savez_compressed", "np.savetxt", "torch.save", "joblib.dump", "pickle.dumps"),
                    Activity.CHECKPOINT),
    **dict.fromkeys(("json.load", "json.loads", "numpy.load", "np.load", "torch.load", "pickle.load", "pickle.loads",
                     "numpy.loadtxt", "np.loadtxt", "numpy.genfromtxt", "np.genfromtxt", "numpy.fromfile",
                     "np.fromfile", "pd.read_csv", "os.read"), Activity.INPUT),
    "gc.collect": Activity.COLLECTION,
}  # fmt: skip
"""By function: the same."""
CALLS = {
    "print": Activity.LOG,
    **dict.fromkeys(("write", "writelines", "writerow", "writerows", "flush", "to_csv", "to_parquet", "to_json",
                     "to_excel", "to_sql", "to_feather", "savefig", "imsave"), Activity.LOG),
    **dict.fromkeys(("read", "readline", "readlines", "read_bytes", "read_text", "readinto"), Activity.INPUT),
    **dict.fromkeys(
        ("deepcopy", "clone", "contiguous", "numpy", "tolist", "cpu", "copy", "astype", "tensor", "as_tensor",
         "from_numpy", "array", "asarray", "ascontiguousarray", "cat", "concat", "concatenate", "stack", "vstack",
         "hstack", "to", "float", "double", "half", "long", "type", "frombuffer", "fromiter"), Activity.COPY,
    ),
    **dict.fromkeys(("zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like",
                     "new_zeros", "new_ones", "new_full", "new_empty"), Activity.ALLOCATION),
}  # fmt: skip
"""By the last name of what is called in the source: the same."""
METHODS = frozenset({"float", "type", "copy", "to", "long", "half", "double", "cpu", "numpy", "clone"})
"""Names that mean this as methods only."""
JOINED = frozenset({"cat", "concat", "concatenate", "stack", "vstack", "hstack", "to", "contiguous"})
"""Copies that are a network's own where they happen in its forward."""
CONVERSIONS = frozenset({"tensor", "as_tensor", "array", "asarray", "fromiter"})
"""Copies that walk through a list of Python's, object by object."""
BLOCKING = frozenset({
    "acquire", "join", "get", "put", "wait", "wait_for", "result", "recv", "recv_bytes", "send", "sleep", "run",
    "communicate", "call", "check_call", "check_output", "map", "starmap", "submit", "as_completed", "synchronize",
})  # fmt: skip
"""Last names of calls that wait for somebody."""
WAITING_MODULES = ("threading", "queue", "concurrent", "multiprocessing", "asyncio", "subprocess", "socket",
                   "selectors", "ssl", "urllib", "http", "requests", "urllib3", "time", "select")  # fmt: skip
WRITING = re.compile(r"""["'][rb]?[wax]b?t?\+?["']""")
"""The mode of a file that is written, in the source."""
COMPREHENSION = re.compile(r"[\[({].*\bfor\b.+\bin\b")
WRITES = frozenset({"write", "writev", "pwrite64", "pwritev", "fsync", "fdatasync", "sync", "syncfs", "msync"})
"""System calls that write."""


class Callee:
    """What an expression of the user's code calls: its text's callee, and the library's frames below it."""

    def __init__(self, text: str, callee: str, below: Sequence[tuple[str, str]]) -> None:
        self.text = text
        self.callee = callee
        """As the source names it: `time.sleep`; '' where it is no call."""
        self.below = below
        """Module and function of the library's frames, the outermost first."""
        self.name = callee.rpartition(".")[2]

    @property
    def walks(self) -> bool:
        """Whether a comprehension makes what it is given."""
        return bool(COMPREHENSION.search(self.text))

    @property
    def framework(self) -> bool:
        """Whether it runs Python code of a framework."""
        return any(module.partition(".")[0] in FRAMEWORKS for module, _ in self.below)

    @property
    def layer(self) -> bool:
        """Whether it calls a layer of a network."""
        return any(module.startswith(LAYERS) for module, _ in self.below)

    def find_activity(self, in_forward: bool) -> Activity | None:
        """What it is for; None where names do not tell. In a forward, joining tensors is the network's own work."""
        if "state_dict" in self.text and (self.name in CALLS or self.name == "state_dict"):
            return Activity.CHECKPOINT
        if self.name == "print":
            return Activity.LOG
        for module, function in self.below:
            known = FUNCTIONS.get(f"{module}.{function}") or _find_module(module)
            if known is not None:
                return known
        if self.name == "open":
            return Activity.LOG if WRITING.search(self.text) else Activity.INPUT
        if (known := FUNCTIONS.get(self.callee)) is not None:
            return known
        if self.name in METHODS and "." not in self.callee:
            return None
        known = CALLS.get(self.name)
        return None if known is Activity.COPY and in_forward and self.name in JOINED else known

    def waits(self, doing: Doing, call: str) -> bool:
        """Whether a thread that does this waits for somebody: not for its own kernels, and not for a processor."""
        if doing is not Doing.WAITING or call in ("", INTERPRETER) or call in WRITES:
            return False
        if call != "futex":
            return True
        # Threads of a kernel wait for each other by the same call.
        text = self.text.removeprefix("with ").removesuffix(":").strip()
        lock = bool(text) and not self.callee and text.replace(".", "").replace("_", "").isalnum()
        return lock or self.name in BLOCKING or any(
            module.startswith(WAITING_MODULES) for module, _ in self.below
        )  # fmt: skip


@cache
def _find_module(module: str) -> Activity | None:
    """What a module is for, or the package that it is in."""
    while module:
        if module in MODULES:
            return MODULES[module]
        module = module.rpartition(".")[0]
    return None
