"""Shuts a file system down, as administrators do: ext4 and XFS share the number of the call."""
import fcntl
import os
import struct
import sys

SHUTDOWN = 0x8004587D
WITHOUT_FLUSHING = 2
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), SHUTDOWN, struct.pack("<I", WITHOUT_FLUSHING))
