//! The examples of each command, as its help shows them. A test holds each of them to the definition.

macro_rules! examples {
    ($($name:ident: $text:literal;)*) => {
        $(pub(super) const $name: &str = concat!("Examples:\n  ", $text);)*
    };
}

examples! {
    RUN: "\
  mountie run                                       watch what there is, repair nothing
  mountie run --config ./config.toml                with a configuration of one's own
  mountie run --listen 0.0.0.0:9747                 let Prometheus on other machines scrape it
  mountie run --mode dry-run                        make plans of repair and tell them
  MOUNTIE_LOG=debug mountie run --log-format json   everything, for a collector of logs";
    STATUS: "\
  mountie status                              every volume in one line
  mountie status -o wide                      with source, device, mode and what was seen
  mountie status --watch                      again whenever something happens
  mountie status -o name | xargs -d '\\n' -n 1 mountie describe
  mountie status -o json | jq '.volumes[] | select(.sick) | .id'
  mountie status > /dev/null; test $? -eq 1 && logger \"a mount is sick\"";
    EVENTS: "\
  mountie events                              what has happened
  mountie events models -n 20                 the last of one volume
  mountie events --follow                     what happens, as it happens
  mountie events --follow -o json | jq -r .message
  mountie events --after 19c3f2a-17           what has happened since that event";
    DESCRIBE: "\
  mountie describe models                     everything that is known of it
  mountie describe /mnt/models                the same, by its mount point
  mountie describe models -o json | jq .errors";
    PROBE: "\
  mountie probe models                        look now, and say what was found
  mountie probe models -o json | jq .last_probe";
    ACK: "\
  mountie ack models                          I know that data was lost there";
    PAUSE: "\
  mountie pause models --for 2h               no repairs for two hours
  mountie pause models --reason \"new disks\"   until mountie resume, and why
  mountie pause --all --for 30m               no repairs on the whole node";
    RESUME: "\
  mountie resume models                       let its repairs go on
  mountie resume --all                        those of all volumes";
    REMOUNT: "\
  mountie remount models --dry-run            what would be done, step by step
  mountie remount models                      do it";
    STATE: "\
  mountie state show                          what is kept, of all volumes
  mountie state show models                   of one
  mountie state forget models                 begin anew with it
  mountie state export | jq .                 everything, for programs";
    STATE_SHOW: "\
  mountie state show                          what is kept, of all volumes
  mountie state show models -o yaml           of one, for programs
  mountie state show --state-dir /mnt/disk/var/lib/mountie   of another machine's disk";
    STATE_FORGET: "\
  mountie state forget models                 begin anew with it";
    STATE_EXPORT: "\
  mountie state export                        everything, as JSON
  mountie state export -o yaml                the same as YAML";
    SENTINEL: "\
  mountie sentinel init models                a file with a content of its own
  mountie sentinel init models --adopt        take the file that is there already";
    SENTINEL_INIT: "\
  mountie sentinel init models                a file with a content of its own
  mountie sentinel init models --path .health --content models-7f3a
  mountie sentinel init models --adopt        take the file that is there already";
    DOCTOR: "\
  mountie doctor                              what works here, and what is lost
  mountie doctor -o json | jq .               the same for programs
  mountie doctor --kernel-family sys_exit     as it would be with other kernel programs";
    CHECK_CONFIG: "\
  mountie check-config                        the configuration that is in use
  mountie check-config ./config.toml          one that is not in use yet
  MOUNTIE_DEFAULTS_INTERVAL=5s mountie check-config";
    COMPLETIONS: "\
  source <(mountie completions bash)
  mountie completions bash > /etc/bash_completion.d/mountie
  mountie completions zsh > /usr/local/share/zsh/site-functions/_mountie
  mountie completions fish > ~/.config/fish/completions/mountie.fish";
    MAN: "\
  mountie man status | man -l -               the page of one command
  mountie man state show | man -l -           of a command below a command
  mountie man --dir /usr/local/share/man/man8";
}
