//! What a worker may do, and as whom: as little as looking needs.
//!
//! `CAP_DAC_READ_SEARCH` reads whatever the owner of a volume has closed. `CAP_DAC_OVERRIDE` is kept in
//! reserve for writes that were asked for, `CAP_SETUID` and `CAP_SETGID` for looks as another user; each is in
//! effect only while it is needed. Everything else is given up for good.
//!
//! As another user a worker is that user in full: with the real, effective and saved ids (FUSE compares all of
//! them), with that user's groups and no others, and with no capability in effect. Nobody but it can bring it
//! back: it cannot be traced, since it stays undumpable and has capabilities in reserve. An agent without `CAP_KILL`
//! cannot kill a worker that hangs as another user; it ends by itself when its call returns.

use agent_core::volume::ProbeUser;
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, getegid, geteuid, getgid, getgroups, getppid, getuid, set_parent_process_death_signal,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// In reserve for becoming another user.
const TO_CHANGE: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// Why nothing was done as the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NotThatUser;

/// Who this thread is, and what it may do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    uid: (Uid, Uid),
    gid: (Gid, Gid),
    sets: CapabilitySets,
}

impl Standing {
    /// That of this moment.
    pub(super) fn now() -> Result<Self, Errno> {
        let sets = capabilities(None)?;
        Ok(Self { uid: (getuid(), geteuid()), gid: (getgid(), getegid()), sets })
    }
}

/// Gives up everything but reading, and what is kept in reserve. A process without privileges keeps none.
pub(super) fn reduce() -> Result<(), Errno> {
    // Ambient capabilities exist since 4.3 and only matter to an exec, which a worker never does.
    let _ = clear_ambient_capability_set();
    let now = capabilities(None)?;
    let reserve = CapabilitySet::DAC_OVERRIDE | TO_CHANGE;
    let permitted = now.permitted & (CapabilitySet::DAC_READ_SEARCH | reserve);
    let effective = permitted & CapabilitySet::DAC_READ_SEARCH;
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
}

/// Runs `act` with the reserve for writing in effect. Without a reserve it runs all the same: a volume that
/// belongs to the worker's own user can be written without it.
pub(super) fn with_write_override<T>(act: impl FnOnce() -> T) -> T {
    let before = capabilities(None).ok();
    if let Some(before) = before {
        let effective = before.effective | (before.permitted & CapabilitySet::DAC_OVERRIDE);
        let _ = set_capabilities(None, CapabilitySets { effective, ..before });
    }
    let result = act();
    if let Some(before) = before {
        let _ = set_capabilities(None, before);
    }
    result
}

/// Runs `act` as another user. When this thread could not become itself again afterwards, its [`Standing`] is
/// another than before: then it must not go on.
pub(super) fn as_user<T>(user: &ProbeUser, act: impl FnOnce() -> T) -> Result<T, NotThatUser> {
    let own = Own::now().map_err(|_| NotThatUser)?;
    let became = become_user(user);
    let result = became.is_ok().then(act);
    // What it could not do shows in its standing.
    let _ = own.restore();
    result.ok_or(NotThatUser)
}

/// What is restored.
struct Own {
    standing: Standing,
    groups: Vec<Gid>,
    parent: Option<Pid>,
}

impl Own {
    fn now() -> Result<Self, Errno> {
        Ok(Self { standing: Standing::now()?, groups: getgroups()?, parent: getppid() })
    }

    fn restore(&self) -> Result<(), Errno> {
        let Standing { uid: (uid, effective_uid), gid: (gid, effective_gid), sets } = self.standing;
        let permitted = capabilities(None)?.permitted;
        set_capabilities(None, CapabilitySets { effective: permitted & TO_CHANGE, ..sets })?;
        set_thread_res_uid(uid, effective_uid, effective_uid)?;
        // With user id 0 everything permitted came into effect.
        set_thread_res_gid(gid, effective_gid, effective_gid)?;
        if getgroups()? != self.groups {
            set_thread_groups(&self.groups)?;
        }
        set_capabilities(None, sets)?;
        follow(self.parent)
    }
}

fn become_user(user: &ProbeUser) -> Result<(), Errno> {
    let parent = getppid();
    let sets = capabilities(None)?;
    let effective = sets.effective | (sets.permitted & TO_CHANGE);
    set_capabilities(None, CapabilitySets { effective, ..sets })?;
    // kernel: `cap_emulate_setxuid`, security/commoncap.c: without it the reserve is lost with user id 0.
    set_keep_capabilities(true)?;
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..sets })?;
    follow(parent)
}

/// A change of ids ends the bond to the parent's life.
///
/// kernel: `commit_creds`, kernel/cred.c: `pdeath_signal = 0`, since 2.6.
fn follow(parent: Option<Pid>) -> Result<(), Errno> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == parent { Ok(()) } else { Err(Errno::SRCH) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_own_thread(test: impl FnOnce() + Send) {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: becoming another user needs root");
            return;
        }
        if let Err(panic) = std::thread::scope(|scope| scope.spawn(test).join()) {
            std::panic::resume_unwind(panic);
        }
    }

    fn status(field: &str) -> String {
        let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn as_another_user_nothing_of_root_is_left_and_afterwards_everything_is_back() {
        in_own_thread(|| {
            reduce().unwrap();
            let before = (Standing::now().unwrap(), status("Groups:"));
            let user = ProbeUser { uid: 4711, gid: 815, groups: vec![7, 9] };
            let seen = as_user(&user, || ["Uid:", "Gid:", "Groups:", "CapEff:"].map(status)).unwrap();
            let expected = ["4711 4711 4711 4711", "815 815 815 815", "7 9", "0000000000000000"];
            assert_eq!(seen, expected);
            assert_eq!((Standing::now().unwrap(), status("Groups:")), before);
            assert_eq!(status("Uid:"), "0 0 0 0");
            assert_eq!(status("CapEff:"), "0000000000000004");
            let signal = rustix::process::parent_process_death_signal().unwrap();
            assert_eq!(signal, Some(Signal::KILL), "the bond to the parent's life");
        });
    }

    #[test]
    fn user_zero_has_no_privilege_in_effect_either() {
        in_own_thread(|| {
            reduce().unwrap();
            let user = ProbeUser { uid: 0, gid: 0, groups: Vec::new() };
            assert_eq!(as_user(&user, || status("CapEff:")), Ok("0000000000000000".to_owned()));
            assert_eq!(status("CapEff:"), "0000000000000004");
        });
    }

    #[test]
    fn who_may_not_become_the_user_does_nothing_and_stays_who_it_is() {
        in_own_thread(|| {
            let none = CapabilitySet::empty();
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
                .unwrap();
            let before = Standing::now().unwrap();
            let user = ProbeUser { uid: 4711, gid: 815, groups: Vec::new() };
            assert_eq!(as_user(&user, || unreachable!("nobody may see this")), Err::<(), _>(NotThatUser));
            assert_eq!(Standing::now().unwrap(), before);
        });
    }
}
