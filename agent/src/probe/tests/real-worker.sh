#!/bin/sh
# Runs the real worker out of the test program that started this script.
umask 077
MOUNTIE_TEST_WORKER="$*" exec "/proc/$PPID/exe" --exact probe::tests::worker_process --test-threads=1 --nocapture
