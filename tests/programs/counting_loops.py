"""Loops of known instructions, in machine code, between requests to callgrind: `python counting_loops.py valgrind.py`.

The argument is the file that knows the requests. Every loop is called with n and with 2n turns; what Python does
around the calls is the same, so the difference is n turns exactly.
"""

import ctypes
import importlib.util
import mmap
import sys

spec = importlib.util.spec_from_file_location("valgrind_requests", sys.argv[1])
requests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(requests)

TURNS = 100_000
COUNTDOWN = bytes.fromhex("4889f9 48ffc9 75fb c3")  # mov rcx, rdi; again: dec rcx; jnz again; ret
COPYING = bytes.fromhex(
    "31c0 488b17 48895708 48ffce 75f4 c3"
)  # again: mov rdx, [rdi]; mov [rdi + 8], rdx; dec rsi; jnz


def function(code):
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return page, ctypes.PYFUNCTYPE(ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)(address)


client = requests.ValgrindClient()
dumps = requests.DumpRequests(client, 16)
page, countdown = function(COUNTDOWN)
other_page, copying = function(COPYING)
memory = (ctypes.c_ulong * 2)()
address = ctypes.addressof(memory)
once, twice = TURNS, 2 * TURNS
calls = [(countdown, once, 0)]  # the first turn of a Python loop costs more than the others
calls += [(countdown, once, 0), (countdown, twice, 0), (copying, address, once), (copying, address, twice)]


def measure(calls, call, addresses):
    """One part for everything before, two empty ones, then one for each call."""
    following = iter(addresses)
    call(next(following), 0)
    call(next(following), 0)
    call(next(following), 0)
    for function, first, second in calls:
        function(first, second)
        call(next(following), 0)


for _ in range(8):  # natively and under callgrind alike, everything has been executed before it counts
    measure(calls, lambda address, default: None, dumps.addresses)
client.request(requests.START_INSTRUMENTATION)
measure(calls, lambda address, default: None, dumps.addresses)
measure(calls, dumps.call, dumps.addresses)
print("under valgrind" if client.running() else "natively")
