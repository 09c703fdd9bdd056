"""Client requests to valgrind: how a Python program tells callgrind where to begin, and when to write its counters.

A request is a sequence of instructions that does nothing on a processor and that valgrind recognises. Python cannot
write it, so its bytes stand in an executable page and are called through ctypes (valgrind.h and callgrind.h, x86-64).
"""

from __future__ import annotations

import ctypes
import mmap
import platform

CODE = bytes.fromhex(
    "4889f8"  # mov rax, rdi: the address of six words, the request and its five arguments
    "4889f2"  # mov rdx, rsi: the result where no valgrind answers
    "48c1c703 48c1c70d 48c1c73d 48c1c733"  # rol rdi by 3, 13, 61, 51: 128 in all, so nothing changes
    "4887db"  # xchg rbx, rbx: where valgrind acts, its result in rdx
    "4889d0 c3"  # mov rax, rdx; ret
)
RUNNING_ON_VALGRIND = 0x1001
CALLGRIND = ord("C") << 24 | ord("T") << 16
DUMP_STATS_AT = CALLGRIND + 3
START_INSTRUMENTATION = CALLGRIND + 4
STOP_INSTRUMENTATION = CALLGRIND + 5
WORDS = 6


class Client:
    """Speaks to the valgrind that this process runs under. Raises OSError where no executable page is to be had."""

    def __init__(self) -> None:
        if platform.machine() not in ("x86_64", "AMD64"):
            raise OSError(f"requests to valgrind are known for x86-64, not for {platform.machine()}")
        self._page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._page.write(CODE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        # PYFUNCTYPE: the lock of the interpreter is kept, so a request costs as few instructions as can be.
        self.call = ctypes.PYFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong)(address)
        """`call(address of six words, default)`: the request itself; the default is what a processor answers."""

    def request(self, number: int) -> int:
        """Make a request once, where its cost does not matter."""
        block = (ctypes.c_ulong * WORDS)(number)
        return int(self.call(ctypes.addressof(block), 0))

    def running(self) -> bool:
        """Whether this process runs under valgrind."""
        return self.request(RUNNING_ON_VALGRIND) > 0


class Dumps:
    """Requests to write and clear the counters, made beforehand: each has a name of its own, from 0 on."""

    def __init__(self, client: Client, most: int) -> None:
        self.call = client.call
        self._names = [ctypes.create_string_buffer(b"sonda %d" % number) for number in range(most)]
        self._blocks = (ctypes.c_ulong * (WORDS * most))()
        for number, name in enumerate(self._names):
            self._blocks[WORDS * number] = DUMP_STATS_AT
            self._blocks[WORDS * number + 1] = ctypes.addressof(name)
        first, size = ctypes.addressof(self._blocks), WORDS * ctypes.sizeof(ctypes.c_ulong)
        self.addresses = [first + size * number for number in range(most)]
        """`call(addresses[n], 0)` writes part n."""
