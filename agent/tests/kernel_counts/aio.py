"""Writes one page through Linux AIO at an offset of a file; prints the result. Exits with 77 where that is refused."""
import ctypes
import os
import platform
import struct
import sys

SETUP, SUBMIT, GETEVENTS = (206, 209, 208) if platform.machine() == "x86_64" else (0, 2, 4)
PWRITE = 1
libc = ctypes.CDLL(None, use_errno=True)
context = ctypes.c_ulong(0)
if libc.syscall(SETUP, 4, ctypes.byref(context)) < 0:
    sys.exit(77)
page = ctypes.create_string_buffer(4096)
target = os.open(sys.argv[1], os.O_WRONLY)
block = struct.pack(
    "<QIIHhIQQqQII", 7, 0, 0, PWRITE, 0, target, ctypes.addressof(page), 4096, int(sys.argv[2]), 0, 0, 0
)
block = ctypes.create_string_buffer(block, len(block))
pointers = (ctypes.c_void_p * 1)(ctypes.addressof(block))
if libc.syscall(SUBMIT, context, ctypes.c_long(1), pointers) != 1:
    sys.exit(77)
event = ctypes.create_string_buffer(32)
assert libc.syscall(GETEVENTS, context, ctypes.c_long(1), ctypes.c_long(1), event, None) == 1
print(struct.unpack_from("<QQqq", event)[2])
