"""The database of metrics in NVIDIA's own package: which names a chip knows, and in how many passes they are counted.

`libnvperf_host` of the package nvidia-cuda-cupti answers for any chip by its name, without a GPU and without a driver
(declarations: `nvperf_host.h` and `nvperf_cuda_host.h` in the same package).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from sonda.record.errors import MissingExtraError, SondaError

PACKAGE = "nvidia-cuda-cupti"
LIBRARY = "libnvperf_host.so"
KINDS = ("counter", "ratio", "throughput")
"""NVPW_MetricType, in its order."""
PROFILER = 1
"""NVPA_ACTIVITY_KIND_PROFILER: one launch after the other, replayed."""

Size, Pointer, Text = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p


class _Request(ctypes.Structure):
    """NVPW_MetricEvalRequest."""

    _fields_ = (("index", Size), ("kind", ctypes.c_uint8), ("rollup", ctypes.c_uint8), ("sub", ctypes.c_uint16))


class _Raw(ctypes.Structure):
    """NVPA_RawMetricRequest."""

    _fields_ = (
        ("size", Size), ("private", Pointer), ("name", Text), ("isolated", ctypes.c_uint8), ("keep", ctypes.c_uint8),
    )  # fmt: skip


RAW_SIZE = _Raw.keep.offset + 1
"""NVPA_STRUCT_SIZE: up to the end of the last field, without padding."""


def find_library() -> Path:
    """The file of the library. Raises MissingExtraError where the package is not installed."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == LIBRARY:
            return Path(os.fspath(file.locate()))
    raise MissingExtraError(PACKAGE, "gpu")


class MetricDatabase:
    """The metrics of one chip, by NVIDIA's name for it (`GH100`). Close it after use."""

    def __init__(self, chip: str) -> None:
        path = find_library()
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise SondaError(f"{path.name} cannot be loaded: {error}", f"install {PACKAGE} again") from None
        self.chip = chip
        self._call("NVPW_InitializeHost", ())
        known = self.chips()
        if chip not in known:
            raise SondaError(f"{PACKAGE} does not know the chip {chip!r}", f"it knows {', '.join(known)}")
        name = chip.encode()
        size = self._call(
            "NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize",
            (("chip", Text, name), ("image", Pointer, None), ("size", Size, 0)),
        ).size
        self._scratch = ctypes.create_string_buffer(size)
        self._evaluator = self._call(
            "NVPW_CUDA_MetricsEvaluator_Initialize",
            (
                ("scratch", Pointer, ctypes.addressof(self._scratch)), ("scratch_size", Size, size),
                ("chip", Text, name), ("image", Pointer, None), ("data", Pointer, None), ("data_size", Size, 0),
                ("evaluator", Pointer, None),
            ),
        ).evaluator  # fmt: skip

    def close(self) -> None:
        """Give the library's memory back."""
        if self._evaluator:
            self._call("NVPW_MetricsEvaluator_Destroy", (("evaluator", Pointer, self._evaluator),))
            self._evaluator = None

    def __enter__(self) -> MetricDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def chips(self) -> list[str]:
        """Every chip that the library knows."""
        answer = self._call(
            "NVPW_GetSupportedChipNames", (("names", ctypes.POINTER(Text), None), ("count", Size, 0))
        )  # fmt: skip
        return [answer.names[index].decode() for index in range(answer.count)]

    def names(self) -> dict[str, str]:
        """Every metric without its suffix (`dram__bytes`, not `dram__bytes.sum`), and which of the kinds it is."""
        kinds = {}
        for kind, word in enumerate(KINDS):
            answer = self._call(
                "NVPW_MetricsEvaluator_GetMetricNames",
                (
                    ("evaluator", Pointer, self._evaluator), ("kind", ctypes.c_uint8, kind), ("names", Pointer, None),
                    ("begins", ctypes.POINTER(Size), None), ("count", Size, 0),
                ),
            )  # fmt: skip
            for index in range(answer.count):
                kinds[ctypes.string_at(answer.names + answer.begins[index]).decode()] = word
        return kinds

    def knows(self, metric: str) -> bool:
        """Whether a metric with its suffix can be asked for on this chip."""
        return self._request(metric) is not None

    def passes(self, metrics: Sequence[str]) -> int:
        """How often a launch is repeated to count these together. Raises SondaError for a name it does not know."""
        requests = []
        for metric in metrics:
            request = self._request(metric)
            if request is None:
                raise SondaError(f"{self.chip} has no metric {metric!r}", "leave it out")
            requests.append(request)
        raw = self._dependencies(requests)
        config = self._call(
            "NVPW_CUDA_RawMetricsConfig_Create_V2",
            (
                ("activity", ctypes.c_int, PROFILER), ("chip", Text, self.chip.encode()), ("image", Pointer, None),
                ("config", Pointer, None),
            ),
        ).config  # fmt: skip
        handle = ("config", Pointer, config)
        try:
            self._call("NVPW_RawMetricsConfig_BeginPassGroup", (handle, ("most", Size, 0)))
            wanted = (_Raw * len(raw))(*[_Raw(RAW_SIZE, None, name, 1, 1) for name in raw])
            self._call(
                "NVPW_RawMetricsConfig_AddMetrics",
                (handle, ("metrics", Pointer, ctypes.addressof(wanted)), ("count", Size, len(raw))),
            )
            self._call("NVPW_RawMetricsConfig_EndPassGroup", (handle,))
            return int(self._call("NVPW_RawMetricsConfig_GetNumPasses_V2", (handle, ("passes", Size, 0))).passes)
        finally:
            self._call("NVPW_RawMetricsConfig_Destroy", (handle,))

    def _request(self, metric: str) -> _Request | None:
        request = _Request()
        status, _ = self._status(
            "NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest",
            (
                ("evaluator", Pointer, self._evaluator), ("name", Text, metric.encode()),
                ("request", Pointer, ctypes.addressof(request)), ("size", Size, ctypes.sizeof(_Request)),
            ),
        )  # fmt: skip
        return None if status else request

    def _dependencies(self, requests: list[_Request]) -> list[bytes]:
        """The counters of the hardware behind these metrics, each once."""
        array = (_Request * len(requests))(*requests)

        def ask(room: Any, count: int) -> int:
            answer = self._call(
                "NVPW_MetricsEvaluator_GetMetricRawDependencies",
                (
                    ("evaluator", Pointer, self._evaluator), ("requests", Pointer, ctypes.addressof(array)),
                    ("count", Size, len(requests)), ("size", Size, ctypes.sizeof(_Request)),
                    ("stride", Size, ctypes.sizeof(_Request)), ("raw", ctypes.POINTER(Text), room),
                    ("raw_count", Size, count), ("optional", Pointer, None), ("optional_count", Size, 0),
                ),
            )  # fmt: skip
            return int(answer.raw_count)

        count = ask(None, 0)
        room = (Text * count)()
        ask(ctypes.cast(room, ctypes.POINTER(Text)), count)
        return list(dict.fromkeys(name for name in room if name))

    def _call(self, function: str, fields: tuple[tuple[str, Any, Any], ...]) -> Any:
        status, answer = self._status(function, fields)
        if status:
            raise SondaError(f"{function} failed with status {status}", f"install another version of {PACKAGE}")
        return answer

    def _status(self, function: str, fields: tuple[tuple[str, Any, Any], ...]) -> tuple[int, Any]:
        """Call with a structure of these fields behind its size and a null, and return status and structure."""
        declared = (("struct_size", Size), ("private", Pointer), *((name, kind) for name, kind, _ in fields))
        structure = type("Parameters", (ctypes.Structure,), {"_fields_": declared})
        last = getattr(structure, declared[-1][0])
        parameters = structure(last.offset + last.size, None, *(value for _, _, value in fields))
        return int(getattr(self._library, function)(ctypes.byref(parameters))), parameters
