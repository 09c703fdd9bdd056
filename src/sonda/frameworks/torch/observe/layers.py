"""Layers of a PyTorch program: when each module's forward and backward ran.

Forward: `Module.__call__` is wrapped. Backward: a pre-hook on the autograd node that made a module's output (a "mark")
announces that backward reaches the module. The engine runs the nodes of one device in sequence, so a layer's backward
lasts until the next mark. A mark on a module's *input* node assigns what lies between two modules to the module around
them, or to none. The hooks return nothing and read no gradients, so gradients do not change.
"""

from __future__ import annotations

import sys
import weakref
from time import perf_counter_ns as now
from typing import Any

from ...collector.recorder import FLUSH_EVENTS, Recorder, Stream
from .identity import IdentityMap
from .module_trees import ModuleTrees, unwrap
from .values import is_loss_class, tensors_in

MOST_LISTINGS = 16
"""Most times that an outermost module is listed again to look for a new part. A program that makes modules in every
step must not pay for a listing in every step."""
MOST_MARKS = 50_000
"""Node numbers kept to avoid marking a node twice: the newest, between this many and twice as many."""
COMPILER = ("torch/_dynamo/", "torch/_inductor/", "torch/_functorch/_aot_autograd/")
"""Paths of the code that runs compiled graphs."""


class LayerRecorder:
    """Defines modules as layers, and records their forward and backward."""

    def __init__(self, recorder: Recorder, torch: Any) -> None:
        self.recorder = recorder
        self.torch = torch
        self.codes: dict = {}
        """Code of a module's forward, by the module's identity."""
        self.backward_codes: dict = {}
        self._guards: dict = {}
        self._modules: dict = {}
        """A weak reference to the module last defined under a code."""
        self._root_of_code: dict = {}
        """The number of the outermost module under which a code was defined; None for an unlisted module."""
        self._marks: dict = {0: self._make_mark(0)}
        self._roots = 0
        self._root_numbers: dict = {}
        """The number of each living outermost module, by its identity."""
        self._root_modules: dict = {}
        """Weak references to the outermost modules, by number."""
        self._free_roots: dict = {}
        """Numbers of outermost modules that are gone, by their structure."""
        self._trees = ModuleTrees(torch)
        self._listings: dict = {}
        """How often each outermost module was listed again to look for a new part."""
        self._wrapped_codes: set = set()
        """Codes of modules inside of a wrapper: the wrapper's call counts as theirs."""
        self._unlisted: dict = {}
        """Weak references to the unlisted modules of a caller, by their class."""
        self._compiler_graphs = IdentityMap()
        self.inspect: Any = None
        """Is called with every call of a module inside of another in a counted step."""
        self.counting: Any = None
        """Counters (`Counting`) to read where a layer begins and ends; None for none."""

    # ---- defining ---------------------------------------------------------------------------------------------

    def define_root(self, module: Any) -> int:
        """Define an outermost module and all its parts, and return the module's code.

        A module of the same structure as one that is gone takes its number. A part of another module keeps its name
        there, even where the program never calls the whole but its methods (`model.decode(z)`), or called the part
        first (a dry run in `__init__`). Returns 0 for a graph made by a compiler, which is no layer.
        """
        if self._is_compiler_graph(module):
            return 0
        called, module = module, unwrap(module)
        whole = module
        if self._roots and not is_loss_class(self.torch, module):
            # The whole is searched for from the second outermost module on; the first one may well be the whole.
            whole = unwrap(self._trees.find_whole(module) or module)
        listed = _list_modules(whole)
        if not any(child is module for _, child in listed):
            whole, listed = module, _list_modules(module)
        root = self._root_numbers.get(id(whole)) or self._new_root(whole, listed)
        absorbed = self._absorb(listed, root, id(whole))
        for path, child in listed:
            self._define(child, absorbed, path=path, root=root, root_name=type(whole).__name__)
        return self._define(called) if called is not module else self.codes[id(module)]

    def _new_root(self, whole: Any, listed: list) -> int:
        """A number for an outermost module: that of a module of the same structure that is gone, or a new one."""
        structure = tuple((path, type(child).__name__) for path, child in listed), _weight_shapes(whole)
        free = self._free_roots.setdefault(structure, [])
        if free:
            root = free.pop()
        else:
            self._roots += 1
            root = self._roots
        self._root_numbers[id(whole)] = root
        self._root_modules[root] = weakref.ref(whole)
        weakref.finalize(whole, self._free_root, free, root, id(whole)).atexit = False
        return root

    def _free_root(self, free: list, root: int, key: int) -> None:
        if self._root_numbers.get(key) == root:  # else it was absorbed by another one
            del self._root_numbers[key]
            free.append(root)

    def _absorb(self, listed: list, root: int, key: int) -> set:
        """State which earlier outermost modules are parts of this new one, and return their numbers."""
        absorbed = set()
        for path, child in listed:
            child_root = self._root_numbers.get(id(child)) if id(child) != key else None
            if child_root is not None:
                absorbed.add(child_root)
                self.recorder.state_lasting(absorbed=child_root, into=root, path=path)
                del self._root_numbers[id(child)]
        return absorbed

    def define_inner(self, module: Any, stack: list) -> int:
        """Define a module that its root did not have before: added since, made during a forward, or unlisted.

        `stack` holds the codes of the running layers, outermost first. Returns 0 for a graph made by a compiler, which
        is no layer.
        """
        if self._is_compiler_graph(module):
            return 0
        inside = stack[-1]
        reference = self._modules.get(inside)
        caller = reference() if reference is not None else None
        path = _path_in_caller(self.torch, caller, module) if caller is not None else ""
        if not path:
            code = self._list_again(module, stack[0])
            if code:
                return code
        return self._define(module, path=path or self._unlisted_name(module, inside), inside=inside // 2)

    def _list_again(self, module: Any, outermost: int) -> int:
        """The code of a module that is a part of its outermost module by now; 0 where it is not."""
        root = self._root_of_code.get(outermost)
        reference = self._root_modules.get(root)
        whole = reference() if reference is not None else None
        if whole is None or self._listings.get(root, 0) >= MOST_LISTINGS:
            return 0
        self._listings[root] = self._listings.get(root, 0) + 1
        for path, child in _list_modules(whole):
            if child is module:
                return self._define(child, path=path, root=root, root_name=type(whole).__name__)
        return 0

    def _unlisted_name(self, module: Any, inside: int) -> str:
        """The module's class, numbered where others of that class are alive: `Linear`, `Linear#2`."""
        name = type(module).__name__
        others = self._unlisted.setdefault((inside, name), [])
        number = next((at for at, reference in enumerate(others) if reference() is None), len(others))
        others[number : number + 1] = [weakref.ref(module)]
        return f"{name}#{number + 1}" if number else name

    def _is_compiler_graph(self, module: Any) -> bool:
        """Whether a module is a graph that torch.compile runs; the compiled module or function is the layer."""
        graph = getattr(sys.modules.get("torch.fx"), "GraphModule", None)
        if graph is None or not isinstance(module, graph):
            return False
        made = self._compiler_graphs.get(module)
        if made is None:
            frame: Any = sys._getframe()
            while frame is not None and not any(part in frame.f_code.co_filename for part in COMPILER):
                frame = frame.f_back
            made = frame is not None
            self._compiler_graphs.set(module, made)
        return made

    def _define(self, module: Any, absorbed: Any = (), **place: Any) -> int:
        """The code of a module at this place. A known module keeps its place unless its root was `absorbed`. A wrapper
        gets the code of the module inside."""
        key = id(module)
        inner = unwrap(module)
        if inner is not module:
            self.codes[key] = self._define(inner, absorbed, **place)
            self._wrapped_codes.add(self.codes[key])
            self._guards[key] = weakref.ref(module, lambda _: self._forget(key))
            return int(self.codes[key])
        code = self.codes.get(key)
        if code is None or (absorbed and self._root_of_code.get(code) in absorbed):
            layer = {"kind": "layer", "name": type(module).__name__, **place}
            if type(module).__name__.endswith("Loss"):
                layer["loss"] = is_loss_class(self.torch, module)
            code = self.recorder.define(**layer, direction="forward")
            self.backward_codes[code] = self.recorder.define(**layer, direction="backward")
            # An identity may be reused once its module is gone, so the callback forgets it.
            self._guards[key] = self._modules[code] = weakref.ref(module, lambda _: self._forget(key))
            self.codes[key] = code
            self._root_of_code[code] = place.get("root")
        return code

    def _forget(self, key: int) -> None:
        self.codes.pop(key, None)
        self._guards.pop(key, None)

    def clear(self) -> None:
        self.codes.clear()
        self._guards.clear()
        self._modules.clear()

    # ---- forward ----------------------------------------------------------------------------------------------

    def wrap(self, original: Any, outermost: Any) -> Any:
        """`Module.__call__` that records. `outermost(original, module, args, kwargs)` calls an outermost module."""
        code_of = self.codes.get
        mine = self.recorder.mine
        grad_enabled = self.torch.is_grad_enabled
        # As `torch.compiler.is_compiling`, in fewer calls: Dynamo replaces `is_dynamo_compiling` by True.
        traced = self.torch.compiler.is_dynamo_compiling
        compiler = vars(self.torch.compiler)
        tensor_type = self.torch.Tensor
        # Without somebody else's patch, an uncompiled module's `_call_impl` can be called directly, which is faster.
        plain = original is self.torch.nn.Module._wrapped_call_impl
        layers = self
        counting = self.counting
        wrapped = self._wrapped_codes
        most = 2 * FLUSH_EVENTS

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            # A compiler that traces this function must find only the original call in it.
            if traced():
                return original(self, *args, **kwargs)
            stream = mine.stream
            if stream is None or not stream.layers:
                return outermost(original, self, args, kwargs)
            if not stream.detail:
                if plain and self._compiled_call_impl is None:
                    return self._call_impl(*args, **kwargs)
                return original(self, *args, **kwargs)
            if compiler.get("_is_compiling_flag"):
                return original(self, *args, **kwargs)
            code = code_of(id(self))
            if code is None:
                code = layers.define_inner(self, stream.layers)
                if not code:
                    return original(self, *args, **kwargs)
            stack = stream.layers
            if code == stack[-1] and code in wrapped:
                return original(self, *args, **kwargs)
            if stream.inspected:
                layers.inspect(stream, self, code, args, kwargs)
            learns = grad_enabled()
            input_node = None
            if learns and args and type(args[0]) is tensor_type:
                input_node = args[0].grad_fn
                if input_node is not None:
                    layers.mark(input_node, stream, stack[-1])
            stack.append(code)
            if counting is None:
                stream.push((code, now()))
            else:
                flag = counting.take(stream)
                stream.push((code + flag, now()))
            try:
                if plain and self._compiled_call_impl is None:
                    result = self._call_impl(*args, **kwargs)
                else:
                    result = original(self, *args, **kwargs)
            finally:
                if counting is None:
                    stream.push((code + 1, now()))
                else:
                    time = now()
                    stream.push((code + 1 + counting.take(stream), time))
                stack.pop()
            if len(stream.events) > most:
                layers.recorder.flush()  # a phase may last as long as the program
            if learns:
                if type(result) is tensor_type:
                    output_node = result.grad_fn
                    if output_node is not None and output_node is not input_node:
                        layers.mark(output_node, stream, code)
                else:
                    layers.mark_all(result, stream, code)
            return result

        return __call__

    def begin(self, stream: Stream, code: int) -> None:
        """Record that the forward of an outermost module begins."""
        flag = self.counting.take(stream) if self.counting is not None else 0
        stream.push((code + flag, now()))

    def end(self, stream: Stream, code: int) -> None:
        """Record that the forward of an outermost module ends."""
        time = now()
        flag = self.counting.take(stream) if self.counting is not None else 0
        stream.push((code + 1 + flag, time))

    # ---- backward ---------------------------------------------------------------------------------------------

    def mark(self, node: Any, stream: Stream, code: int) -> None:
        """Let backward announce layer `code` (0: none) when it reaches this node."""
        number = node._sequence_nr()
        if number in stream.hooked or number in stream.older:
            return
        if len(stream.hooked) > MOST_MARKS:
            stream.older, stream.hooked = stream.hooked, set()
        stream.hooked.add(number)
        mark = self._marks.get(code)
        if mark is None:
            mark = self._marks[code] = self._make_mark(self.backward_codes[code])
        node.register_prehook(mark)

    def mark_all(self, value: Any, stream: Stream, code: int) -> None:
        """Mark the nodes of all tensors in a module's result or arguments, nested ones too."""
        if type(value) is self.torch.Tensor:
            node = value.grad_fn
            if node is not None:
                self.mark(node, stream, code)
            return
        for tensor in tensors_in(self.torch, value):
            with self.torch._C.DisableTorchFunctionSubclass():  # subclasses must not see the access
                node = tensor.grad_fn
            if node is not None:
                self.mark(node, stream, code)

    @property
    def has_marks(self) -> bool:
        """Whether any module's output was marked."""
        return len(self._marks) > 1

    def _make_mark(self, code: int) -> Any:
        """The hook that ends the layer before it and begins layer `code` in this thread's backward."""
        recorder = self.recorder
        mine = recorder.mine
        layers = self

        def mark(_gradients: Any) -> None:
            stream = mine.stream
            if stream is None:
                stream = recorder.stream(engine=True)
            if not stream.detail or not (stream.phases or stream.engine):
                return
            time = now()
            counting = layers.counting
            if counting is None:
                if stream.backward:
                    stream.push((stream.backward + 1, time))
                if code:
                    stream.push((code, time))
            elif stream.backward or code:
                # One reading ends a layer and begins the next; the time of the reading belongs to neither.
                flag = counting.take(stream)
                if stream.backward:
                    stream.push((stream.backward + 1 + flag, time))
                    flag = counting.reader.again if flag else 0
                if code:
                    stream.push((code + flag, now()))
            stream.backward = code

        return mark

    def end_backward(self, stream: Stream, outer: int) -> None:
        """End a backward, and the layer that it was in. `outer` is the layer in whose backward this one was called."""
        time = now()
        for running in list(self.recorder.streams):
            if (running is stream or running.engine) and running.backward:
                flag = self.counting.take(running) if self.counting is not None else 0
                running.push((running.backward + 1 + flag, time))
                running.backward = 0
        stream.backward = outer


def _list_modules(module: Any) -> list:
    """A module and all its parts, each once, with their paths, as PyTorch's own `named_modules` gives them.

    A wrapper and the module inside have the same path.
    """
    listed, seen = [], set()
    waiting = [("", module)]
    while waiting:
        path, part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        listed.append((path, part))
        inner = unwrap(part)
        if inner is not part:
            waiting.append((path, inner))
            continue
        parts = vars(part).get("_modules") or {}
        below = [
            (f"{path}.{name}" if path else name, child) for name, child in list(parts.items()) if child is not None
        ]
        waiting.extend(reversed(below))
    return listed


def _weight_shapes(module: Any) -> tuple:
    """The shapes of all weights; () where they are not known yet."""
    try:
        return tuple(tuple(weight.shape) for weight in module.parameters())
    except Exception:  # lazy modules make their weights in the first call
        return ()


def _path_in_caller(torch: Any, caller: Any, module: Any, prefix: str = "") -> str:
    """The path of a module in its caller, through lists and dictionaries of modules; '' where it is unlisted."""
    for name, child in caller._modules.items():
        if child is module or (child is not None and unwrap(child) is module):
            return prefix + name
        if isinstance(child, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            path = _path_in_caller(torch, child, module, f"{prefix}{name}.")
            if path:
                return path
    return ""
