#!/bin/sh
# Says that it is ready, and answers the first request with nonsense.
printf '\001\000\000\000\000' >&0
head -c 4 >/dev/null
printf '\001\000\000\000\377' >&0
exec cat >/dev/null
