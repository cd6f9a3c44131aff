#!/bin/sh
# A hook: asked before each attempt at repair, where [volume.repair] says
#
#     hook = { exec = ["/etc/mountie/ask"], timeout = "10s" }
#
# On standard input stands one JSON object, the evidence:
#
#     {"apiVersion": "mountie/v1", "kind": "RepairQuestion",
#      "question": 7, "timeout_seconds": 10.0,    number of the question, time for the answer
#      "put_off": 1, "put_off_at_most": 10,       waits so far, and how many there may be
#      "at": "2026-01-31T12:00:00.000Z",
#      "plan": {"id": 12, "method": "mount", "reason": "stale", "steps": ["…"]},   what would be done
#      "volume": {"id": "models", "mountpoint": "/mnt/models", "state": "degraded", "reason": "stale", …}}
#
# "volume" is what GET /api/v1/volumes/NAME shows: errors, the last probe, who met it, the history. No secrets are in
# it. Fields may be added; none changes its meaning.
#
# The answer is one JSON object on standard output, and exit code 0:
#
#     {"answer": "remount"}              go on
#     {"answer": "resolved"}             it is in order again: the agent looks, and does nothing
#     {"answer": "wait", "seconds": 60}  not now; ask again then (from 1 second to 1 hour)
#     {"answer": "escalate"}             do nothing; the volume is quarantined, a person must act
#
# "text" may say why; people see it. Anything else, another exit code, or no answer in time counts as a wait, and after
# ten waits in a row the volume is quarantined.
#
# This one waits while a file says that somebody works on the storage, and leaves a file system that has shut itself
# down to a person. Arguments: the file, and for how many seconds to wait.

maintenance=${1:-/run/mountie/maintenance}
seconds=${2:-60}
evidence=$(cat)

if [ -e "$maintenance" ]; then
    echo '{"answer": "wait", "seconds": '"$seconds"', "text": "maintenance"}'
elif printf '%s' "$evidence" | grep -q '"plan":{[^}]*"reason":"fs_shutdown"'; then
    echo '{"answer": "escalate", "text": "it has shut itself down: look at the disk first"}'
else
    echo '{"answer": "remount"}'
fi
