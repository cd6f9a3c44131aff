"""Writes one page through an io_uring at an offset of a file; prints the result. Exits with 77 where that is refused."""
import ctypes
import mmap
import os
import struct
import sys

SETUP, ENTER = 425, 426
WRITE, GETEVENTS = 23, 1
libc = ctypes.CDLL(None, use_errno=True)
params = (ctypes.c_uint32 * 30)()
ring = libc.syscall(SETUP, 8, params)
if ring < 0:
    sys.exit(77)
submissions = mmap.mmap(ring, params[10 + 6] + params[0] * 4, offset=0)
completions = mmap.mmap(ring, params[20 + 5] + params[1] * 16, offset=0x8000000)
entries = mmap.mmap(ring, params[0] * 64, offset=0x10000000)

page = ctypes.create_string_buffer(4096)
target = os.open(sys.argv[1], os.O_WRONLY)
entry = struct.pack("<BBHiQQIIQ", WRITE, 0, 0, target, int(sys.argv[2]), ctypes.addressof(page), 4096, 0, 7)
entries[: len(entry)] = entry
submissions[params[16] : params[16] + 4] = struct.pack("<I", 0)
submissions[params[11] : params[11] + 4] = struct.pack("<I", 1)
if libc.syscall(ENTER, ring, 1, 1, GETEVENTS, None, 0) != 1:
    sys.exit(77)
user_data, result = struct.unpack_from("<Qi", completions, params[25])
assert user_data == 7
print(result)
