//! The texts of `--help`. They teach: what it is, how to begin, what an exit code means.

pub(super) const OVERVIEW: &str = "\
Watches mounts: notices stale, hung, read-only and vanished ones, says so, and repairs them if asked to.

One agent runs on each node (mountie run). The kernel tells it when I/O on a mount fails, and it looks for \
itself with reads that can never hang it. Every other command asks that agent or needs none.";

pub(super) const AFTER: &str = "\
Examples:
  mountie check-config ./config.toml         find every mistake in a file before it is used
  mountie run --config ./config.toml         run the agent in the foreground
  mountie status                             every volume and its state
  mountie status --watch                     the same, again whenever something happens
  mountie status -o json | jq .              the same for programs
  mountie events --follow                    what happens, as it happens
  mountie describe models                    why is this volume degraded, and since when
  mountie probe models                       look at it now
  mountie ack models                         I know that data was lost there
  mountie pause models --for 2h              no repairs for two hours; sight goes on
  mountie remount models --dry-run           what a repair would do, step by step
  mountie state show models                  what is kept of it across restarts
  mountie sentinel init models               put a file there that every probe reads
  mountie doctor                             what works on this host and what does not

Exit codes:
  0   all is well
  1   a volume is sick; for ack, pause, resume, remount: it is not in a state for that, or it did not help
  64  wrong usage or configuration
  69  no sensor can run, or no agent answers
  70  a fault of the agent itself, or of what it stands on
  77  a privilege is missing

Files:
  /etc/mountie/config.toml     the configuration; optional; only root may write it
  /run/mountie/mountie.sock    the agent's socket
  /run/mountie/lock            held by the running agent
  /run/mountie/stage           where repairs make new mounts
  /var/lib/mountie             what the agent remembers across restarts

Environment:
  MOUNTIE_<SECTION>_<KEY>      overrides a key of the file, such as
                               MOUNTIE_AGENT_LISTEN or MOUNTIE_DEFAULTS_INTERVAL
  MOUNTIE_LOG                  error, warn, info (default), debug, trace, or filters";

pub(super) const RUN: &str = "\
Run the agent in the foreground, until SIGTERM or SIGINT.

Without a configuration every network, FUSE and block-backed file system is watched and nothing is repaired. \
Name a volume in the configuration to have its absence noticed; give it mode = \"act\" to have it repaired. \
Flags override variables, variables override the file.";

pub(super) const STATUS: &str = "\
Show every volume and its state, as the running agent has it. No watched path is touched.

With --watch it is shown again whenever something happens: on a terminal in place, with the ages of every second; into a \
file or a pipe one picture after the other, each when a condition is another than before. Ctrl-C ends it as if it had been \
asked then. Colours and other control sequences go to terminals alone; NO_COLOR=1 turns colours off.

Ends with 0 when every volume is well, 1 when one is sick, 69 when no agent answers (also when it went while it was \
watched), 77 when you may not ask it.";

pub(super) const EVENTS: &str = "\
Show what has happened since the agent started, the newest last: changes of condition, incidents, repairs, and what \
people did. The agent remembers 4096 events; its log has the older ones.

With --follow it goes on with what happens, until interrupted. An agent that is started anew is waited for, and what it \
tells then is shown from its first event on; that it was started anew is said, and so is what it could not keep. No event \
is shown twice. With -o json every event is one line then, without it one answer as /api/v1/events has it.

Ends with 0, 64 when there is no such volume or event, 69 when no agent answers, 77 when you may not ask it.";

pub(super) const DESCRIBE: &str = "\
Show everything known about one volume: state, reason and since when, the last probes, errors the kernel \
reported, by which rule it was judged and what would clear it, what fails together with it, who still holds what was \
replaced, what would be repaired \
and how.

Ends with 0 when it is well, 1 when it is sick, 64 when there is no such volume, 69 when no agent answers.";

pub(super) const PROBE: &str = "\
Have the agent look at one volume now, and wait for the answer. A volume that hangs ends the wait at its \
deadline.

Ends with 0 when it is well, 1 when it is sick, 64 when there is no such volume, 69 when no agent answers.";

pub(super) const ACK: &str = "\
Acknowledge that a volume has lost data: dirty pages that never reached storage (writeback_lost). Until somebody \
does, or the volume is mounted anew, it stays degraded, because no later look can bring the data back. What is lost \
after that is told anew. Damage that a file system found in itself (the advice damaged: have it checked) is \
acknowledged with it. Who acknowledged it is an event, stands in the volume's history, and is shown with the loss or \
the damage as long as that mount lasts, also after a restart of the agent.

For root and the agent's own user, over the agent's socket. Ends with 0 when it is acknowledged, 1 when there is \
nothing to acknowledge, 64 when there is no such volume, 69 when no agent answers, 77 when you may not.";

pub(super) const PAUSE: &str = "\
Stop the repairs of a volume, or with --all of every volume of the node. Sight goes on: states, metrics and events say \
what is wrong as before. A plan that runs already goes to its end. A restart of the agent does not end a pause; where the agent \
cannot read what was paused, the repairs of all volumes are paused until mountie resume --all.

Who paused, since when and why stands in status and describe, and is an event. For root and the agent's own user, over \
the agent's socket. Ends with 0, 64 when there is no such volume, 69 when no agent answers, 77 when you may not.";

pub(super) const RESUME: &str = "\
Let repairs go on. With --all every pause ends, also those of single volumes. What is due begins at once.

For root and the agent's own user. Ends with 0, 1 when nothing was paused or the pause of the whole node goes on, 64 \
when there is no such volume, 69 when no agent answers, 77 when you may not.";

pub(super) const REMOUNT: &str = "\
Mount a volume anew, once, as a repair would: made at a private place, looked at there, then shown in place of the old \
mount. In every mode but off, whatever the state. Where only other mounts still show what was replaced, those follow and \
the volume stays as it is. It does not count as an attempt of the agent. Ending this command does not end the plan.

With --dry-run nothing is done: the plan is shown step by step, with what each step touches, also for a volume that is \
well or only observed.

For root and the agent's own user; --dry-run for everybody who may ask the agent. Ends with 0 when it is done, 1 when it \
failed or cannot begin now (paused, another plan at work, another mount at the place), 64 when the configuration does \
not say enough or the mode is off, 69 when no agent answers, 77 when you may not.";

pub(super) const STATE: &str = "\
Show, export or forget what the agent keeps across restarts: what is mounted where and from what, troubles, attempts, \
pauses, sentinels, plans without an end. Secrets are never kept. show and export read the directory and need no agent; \
forget goes through the agent where one runs. A pause is not forgotten, and that is said: mountie resume ends it.

Ends with 0, 64 when nothing is kept of such a volume, 1 when a file could not be read, 77 when you may not.";

pub(super) const SENTINEL: &str = "\
Have the running agent put a sentinel on a volume: a small file with a content of its own, which every probe then \
reads past the cache. It proves that data can be read, and that it is this volume and no other.

A worker writes it, once, on the mounted volume and never on a bare directory. What is there already is not touched: \
a file with other content is refused, or taken as it is with --adopt. The line for the configuration is printed; \
until it stands there, the agent remembers the sentinel of a volume that the configuration names. A sentinel that the configuration names itself is put \
there as it says, and no other.

For root and the agent's own user, over the agent's socket.

Ends with 0 when the sentinel is in place, 1 when the volume cannot take it (read-only, full, not mounted, hung), \
64 when there is no such volume, something else is in its place, or the configuration names another sentinel, 69 when no \
agent answers, 77 when you may not.";

pub(super) const DOCTOR: &str = "\
Find out what works on this host: privileges, mount namespace, kernel programs, fanotify. For each part that \
does not work: why, and what is lost without it. Says when the watched mount namespace has nearly as many mounts as \
the kernel lets it have, and what a repair would lack. Changes nothing; no agent need run.

Ends with 0 when a sensor can run and nothing is off for want of a privilege, 77 when something is, 69 when no sensor can run.";

pub(super) const CHECK_CONFIG: &str = "\
Check a configuration and print what is in effect, with every default filled in, in the form of the file. \
Variables and flags count as they do for run.

Everything that is wrong is reported at once, with its key, what was found and what is accepted; so is what a \
repair would lack on this node: an entry in /etc/fstab, a unit, a file of variables that is root's alone. Ends with \
0, or 64 when something is wrong.";

pub(super) const COMPLETIONS: &str = "\
Print what has a shell complete commands, options and the names of volumes. What is printed asks the installed mountie \
for every word, and that asks the agent for the volumes; without an agent, or without the right to ask it, there are no names.";

pub(super) const MAN: &str = "\
Print the manual page of a command for man(1), or write the pages of all commands into a directory. They say what --help \
says.";
