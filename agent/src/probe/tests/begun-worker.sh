#!/bin/bash
# Says that it is ready, announces the first step of what it is asked, and answers nothing. Without another process: that
# would take time in which it has not begun.
printf '\001\000\000\000\000' >&0
read -r -N 1
printf '\001' >&1
exec cat >/dev/null
