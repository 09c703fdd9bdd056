"""Machine code of x86-64 that can be called: no compiler or interpreter decides which instructions a loop executes."""

from __future__ import annotations

import ctypes
import mmap
import platform


class MachineCode:
    """A function of whole numbers, `arguments` of them. Raises OSError on other processors and without executable
    memory."""

    def __init__(self, code: bytes, arguments: int) -> None:
        if platform.machine() not in ("x86_64", "AMD64"):
            raise OSError(f"the loops are machine code of x86-64, not of {platform.machine()}")
        self._page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._page.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        # PYFUNCTYPE keeps the interpreter's lock during the call.
        self._call = ctypes.PYFUNCTYPE(ctypes.c_ulong, *[ctypes.c_ulong] * arguments)(address)

    def __call__(self, *arguments: int) -> int:
        return int(self._call(*arguments))
