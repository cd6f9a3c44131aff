"""Maps two pages of a file and writes to the second. With `cut`, the file is cut to nothing in between."""
import mmap
import sys

with open(sys.argv[1], "r+b") as file:
    file.truncate(8192)
    pages = mmap.mmap(file.fileno(), 8192)
    if sys.argv[2:] == ["cut"]:
        file.truncate(0)
    pages[4096] = 1
