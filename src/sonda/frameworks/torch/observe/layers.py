"""Layers of a PyTorch program: when each module's forward and backward ran.

Forward: a wrapped `Module.__call__`. Backward: a pre-hook on the autograd node that made a module's output tells when
backward reaches the module. The engine runs the nodes of one device in one sequence, so a layer's backward lasts until
the next mark. A mark on a module's *input* node gives what lies between two modules to the module around them, or to
none where there is none. The hooks return nothing and look at nothing, so gradients are what they would have been.
"""

from __future__ import annotations

import sys
import weakref
from time import perf_counter_ns as now
from typing import Any

from ...collector.recorder import FLUSH_EVENTS, Recorder, Stream
from .identity import ByIdentity
from .module_trees import ModuleTrees, unwrapped
from .values import is_loss_class, tensors_in

MOST_LISTINGS = 16
"""How often an outermost module is listed again for a part that it may have got since: a program that makes modules in
every step must not pay for it in every step."""
MOST_MARKS = 50_000
"""Node numbers kept to avoid marking a node twice: between this many and twice as many of the newest."""


COMPILER = ("torch/_dynamo/", "torch/_inductor/", "torch/_functorch/_aot_autograd/")
"""Where the code lies that runs what was compiled."""


class Layers:
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
        self._places: dict = {}
        """The number of the outermost module under which a code was defined; None where its caller does not list it."""
        self._marks: dict = {0: self._make_mark(0)}
        self._roots = 0
        self._root_of: dict = {}
        """The number of each outermost module that is there, by its identity."""
        self._root_modules: dict = {}
        """A weak reference to the outermost module of each number."""
        self._free_roots: dict = {}
        """Numbers of outermost modules that are gone, by what they were made of."""
        self._trees = ModuleTrees(torch)
        self._listings: dict = {}
        """How often each outermost module was listed again for a part that it did not list before."""
        self._wrapped: set = set()
        """Codes of modules that something wraps: the call of the wrapper is theirs."""
        self._unlisted: dict = {}
        """Weak references to the unlisted modules of a caller, by their class."""
        self._artefacts = ByIdentity()
        self.counting: Any = None
        """Counters (`Counting`) that are read where a layer begins and ends; None for none."""

    # ---- defining ---------------------------------------------------------------------------------------------

    def define_root(self, module: Any) -> int:
        """Define an outermost module and all that it lists. One like another that is gone takes its place.

        A module that another one lists keeps its name there, also where the program calls methods of that other one and
        never the whole (`model.decode(z)`), or called this one first (a dry run in `__init__`). Returns 0 for what a
        compiler made: that is no layer.
        """
        if self._made_by_compiler(module):
            return 0
        called, module = module, unwrapped(module)
        whole = module
        if self._roots and not is_loss_class(self.torch, module):
            # Of the first outermost module nobody else's name is known: it is looked for when there is a second.
            whole = unwrapped(self._trees.whole_of(module) or module)
        listed = _listed(whole)
        if not any(child is module for _, child in listed):
            whole, listed = module, _listed(module)
        root = self._root_of.get(id(whole)) or self._new_root(whole, listed)
        absorbed = self._absorb(listed, root, id(whole))
        for path, child in listed:
            self._define(child, absorbed, path=path, root=root, root_name=type(whole).__name__)
        return self._define(called) if called is not module else self.codes[id(module)]

    def _new_root(self, whole: Any, listed: list) -> int:
        """A number for an outermost module; that of one made of the same which is gone."""
        made_of = tuple((path, type(child).__name__) for path, child in listed), _sizes(whole)
        free = self._free_roots.setdefault(made_of, [])
        if free:
            root = free.pop()
        else:
            self._roots += 1
            root = self._roots
        self._root_of[id(whole)] = root
        self._root_modules[root] = weakref.ref(whole)
        weakref.finalize(whole, self._free_root, free, root, id(whole)).atexit = False
        return root

    def _free_root(self, free: list, root: int, key: int) -> None:
        if self._root_of.get(key) == root:  # else it is a part of another, for good
            del self._root_of[key]
            free.append(root)

    def _absorb(self, listed: list, root: int, key: int) -> set:
        """State which outermost modules are parts of this new one, and return their numbers."""
        absorbed = set()
        for path, child in listed:
            other = self._root_of.get(id(child)) if id(child) != key else None
            if other is not None:
                absorbed.add(other)
                self.recorder.state_lasting(absorbed=other, into=root, path=path)
                del self._root_of[id(child)]
        return absorbed

    def define_inner(self, module: Any, stack: list) -> int:
        """Define a module that was not there when its root was defined: added since, made on the way, or unlisted.

        `stack` holds the codes of the layers that run, outermost first. Returns 0 for what a compiler made: that is no
        layer.
        """
        if self._made_by_compiler(module):
            return 0
        inside = stack[-1]
        reference = self._modules.get(inside)
        caller = reference() if reference is not None else None
        path = _place(self.torch, caller, module) if caller is not None else ""
        if not path:
            code = self._list_again(module, stack[0])
            if code:
                return code
        return self._define(module, path=path or self._unlisted_name(module, inside), inside=inside // 2)

    def _list_again(self, module: Any, outermost: int) -> int:
        """The code of a module that its outermost module lists by now; 0 where it does not."""
        root = self._places.get(outermost)
        reference = self._root_modules.get(root)
        whole = reference() if reference is not None else None
        if whole is None or self._listings.get(root, 0) >= MOST_LISTINGS:
            return 0
        self._listings[root] = self._listings.get(root, 0) + 1
        for path, child in _listed(whole):
            if child is module:
                return self._define(child, path=path, root=root, root_name=type(whole).__name__)
        return 0

    def _unlisted_name(self, module: Any, inside: int) -> str:
        """The module's class, numbered where others of that class are still there: `Linear`, `Linear#2`."""
        name = type(module).__name__
        others = self._unlisted.setdefault((inside, name), [])
        number = next((at for at, other in enumerate(others) if other() is None), len(others))
        others[number : number + 1] = [weakref.ref(module)]
        return f"{name}#{number + 1}" if number else name

    def _made_by_compiler(self, module: Any) -> bool:
        """Whether this is a graph that torch.compile runs: the compiled module or function is the layer."""
        graph = getattr(sys.modules.get("torch.fx"), "GraphModule", None)
        if graph is None or not isinstance(module, graph):
            return False
        made = self._artefacts.get(module)
        if made is None:
            frame: Any = sys._getframe()
            while frame is not None and not any(part in frame.f_code.co_filename for part in COMPILER):
                frame = frame.f_back
            made = frame is not None
            self._artefacts.set(module, made)
        return made

    def _define(self, module: Any, absorbed: Any = (), **place: Any) -> int:
        """The code of a module at this place; a known one keeps its place unless its root was `absorbed`. A wrapper has
        the code of what it wraps."""
        key = id(module)
        inner = unwrapped(module)
        if inner is not module:
            self.codes[key] = self._define(inner, absorbed, **place)
            self._wrapped.add(self.codes[key])
            self._guards[key] = weakref.ref(module, lambda _: self._forget(key))
            return int(self.codes[key])
        code = self.codes.get(key)
        if code is None or (absorbed and self._places.get(code) in absorbed):
            layer = {"kind": "layer", "name": type(module).__name__, **place}
            if type(module).__name__.endswith("Loss"):
                layer["loss"] = is_loss_class(self.torch, module)
            code = self.recorder.define(**layer, direction="forward")
            self.backward_codes[code] = self.recorder.define(**layer, direction="backward")
            # An identity may be used again once its module is gone; the weak reference also keeps it from staying.
            self._guards[key] = self._modules[code] = weakref.ref(module, lambda _: self._forget(key))
            self.codes[key] = code
            self._places[code] = place.get("root")
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
        """`Module.__call__` that records; `outermost(original, module, args, kwargs)` calls one that no other did."""
        code_of = self.codes.get
        mine = self.recorder.mine
        grad_enabled = self.torch.is_grad_enabled
        # As `torch.compiler.is_compiling`, in fewer calls: Dynamo takes the answer of the first for True.
        traced = self.torch.compiler.is_dynamo_compiling
        compiler = vars(self.torch.compiler)
        tensor_type = self.torch.Tensor
        # What the original does where a module is not compiled, without its cost; another's patch is called as it is.
        plain = original is self.torch.nn.Module._wrapped_call_impl
        layers = self
        counting = self.counting
        wrapped = self._wrapped
        most = 2 * FLUSH_EVENTS

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            # A compiler that traces this function finds nothing but the original call in it.
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
            learns = grad_enabled()
            given = None
            if learns and args and type(args[0]) is tensor_type:
                given = args[0].grad_fn
                if given is not None:
                    layers.mark(given, stream, stack[-1])
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
                    made = result.grad_fn
                    if made is not None and made is not given:
                        layers.mark(made, stream, code)
                else:
                    layers.mark_all(result, stream, code)
            return result

        return __call__

    def begin(self, stream: Stream, code: int) -> None:
        """Record that the forward of a module begins that no other module called."""
        flag = self.counting.take(stream) if self.counting is not None else 0
        stream.push((code + flag, now()))

    def end(self, stream: Stream, code: int) -> None:
        time = now()
        flag = self.counting.take(stream) if self.counting is not None else 0
        stream.push((code + 1 + flag, time))

    # ---- backward ---------------------------------------------------------------------------------------------

    def mark(self, node: Any, stream: Stream, code: int) -> None:
        """Have backward announce layer `code` (0: none) when it reaches this node."""
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
        """Mark every tensor in a module's result or arguments, however they are nested."""
        if type(value) is self.torch.Tensor:
            node = value.grad_fn
            if node is not None:
                self.mark(node, stream, code)
            return
        for tensor in tensors_in(self.torch, value):
            with self.torch._C.DisableTorchFunctionSubclass():  # a subclass must not see us look
                node = tensor.grad_fn
            if node is not None:
                self.mark(node, stream, code)

    @property
    def marked(self) -> bool:
        """Whether anything was marked that a module made."""
        return len(self._marks) > 1

    def _make_mark(self, code: int) -> Any:
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
                # One reading is the end of one layer and the begin of the next; what it takes is neither's.
                flag = counting.take(stream)
                if stream.backward:
                    stream.push((stream.backward + 1 + flag, time))
                    flag = counting.reader.again if flag else 0
                if code:
                    stream.push((code + flag, now()))
            stream.backward = code

        return mark

    def end_backward(self, stream: Stream, outer: int) -> None:
        """A backward ends: so does the layer that it was in. `outer` is the one in which this backward was called."""
        time = now()
        for other in list(self.recorder.streams):
            if (other is stream or other.engine) and other.backward:
                flag = self.counting.take(other) if self.counting is not None else 0
                other.push((other.backward + 1 + flag, time))
                other.backward = 0
        stream.backward = outer


def _listed(module: Any) -> list:
    """A module and all its parts, each once, with their paths: as `named_modules` where no class changed that.

    A wrapper and what it wraps have one path."""
    listed, seen = [], set()
    waiting = [("", module)]
    while waiting:
        path, part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        listed.append((path, part))
        inner = unwrapped(part)
        if inner is not part:
            waiting.append((path, inner))
            continue
        parts = vars(part).get("_modules") or {}
        below = [
            (f"{path}.{name}" if path else name, child) for name, child in list(parts.items()) if child is not None
        ]
        waiting.extend(reversed(below))
    return listed


def _sizes(module: Any) -> tuple:
    """The shapes of all weights; nothing of a module that does not know them yet."""
    try:
        return tuple(tuple(weight.shape) for weight in module.parameters())
    except Exception:  # weights that are made by the first call
        return ()


def _place(torch: Any, caller: Any, module: Any, prefix: str = "") -> str:
    """The name under which its caller lists a module, lists and dictionaries of modules included; '' if it does not."""
    for name, child in caller._modules.items():
        if child is module or (child is not None and unwrapped(child) is module):
            return prefix + name
        if isinstance(child, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            found = _place(torch, child, module, f"{prefix}{name}.")
            if found:
                return found
    return ""
