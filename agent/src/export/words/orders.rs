//! Sentences about what people order: why not, and what a plan would touch.

use agent_core::order::{Done, Lack, Refused};
use agent_core::path::escape;
use agent_core::pause::{Pause, Scope};
use agent_core::remediation::{Action, Plan};
use agent_core::secret::hide;
use agent_core::volume::Method;

use super::{program_name, reach_words};
use crate::export::timestamp::{Timestamp, WallClock};

/// Why an order was not followed, and what to do.
pub(crate) fn refused(refused: &Refused, clock: WallClock) -> String {
    match refused {
        Refused::NoSuchVolume => "there is no such volume; see `mountie status`".to_owned(),
        Refused::NotPaused => "it is not paused".to_owned(),
        Refused::Off => "its mode is off: nothing is done for it; set another `mode` in the configuration".to_owned(),
        Refused::Found => {
            "it was found in the mount table, and how it is made nobody has said; name it in the configuration with \
             source, fstype and options"
                .to_owned()
        }
        Refused::Incomplete(lack) => format!("the configuration does not say {}", lacking(*lack)),
        Refused::Idle => "only the automount trap is there; whoever walks there has it mounted".to_owned(),
        Refused::Occupied => {
            "something else is mounted at its place or over it, and whoever did that may mean it; unmount that first"
                .to_owned()
        }
        Refused::Paused(pause) => format!("repairs are {}; end that with `mountie resume`", paused(pause, clock)),
        Refused::Busy(plan) => {
            format!("plan {plan} is at work on the same volume, superblock or server, or as many run as may; try again")
        }
        Refused::Unsettled => {
            "what an earlier plan left half-made there is settled first; try again, or see `mountie describe`".to_owned()
        }
        Refused::Looking => "a look at it or an errand is out, which would hold the old mount; try again".to_owned(),
    }
}

const fn lacking(lack: Lack) -> &'static str {
    match lack {
        Lack::Source => "what is to be mounted; give it a `source`",
        Lack::FsType => "of which type it is; give it an `fstype`",
        Lack::Unit => "which unit mounts it; give its `[volume.repair]` a `unit`",
        Lack::Command => "what repairs it; give its `[volume.repair]` a `command`",
    }
}

/// When a pause began, perhaps before this boot.
pub(crate) fn paused_since(pause: &Pause, clock: WallClock) -> Timestamp {
    pause.since_wall.map_or_else(|| clock.at(pause.since), Timestamp::from_epoch)
}

/// `paused by … since …`.
pub(crate) fn paused(pause: &Pause, clock: WallClock) -> String {
    let since = paused_since(pause, clock).whole_seconds();
    let until = pause.until.map(|until| format!(" until {}", clock.at(until).whole_seconds()));
    let reason = pause.reason.as_deref().map(|reason| format!(" ({})", hide(reason)));
    format!("paused by {} since {since}{}{}", pause.by, until.unwrap_or_default(), reason.unwrap_or_default())
}

/// What came of an order.
pub(crate) fn done(done: &Done, kept: bool, clock: WallClock) -> String {
    let text = match done {
        Done::Paused { pause, running } => {
            let end = match pause.until {
                Some(until) => format!("until {}", clock.at(until).whole_seconds()),
                None => "until `mountie resume`".to_owned(),
            };
            let ids: Vec<String> = running.iter().map(ToString::to_string).collect();
            let running = match ids.as_slice() {
                [] => String::new(),
                [one] => format!("; plan {one} is running and goes to its end"),
                more => format!("; the plans {} are running and go to their end", more.join(", ")),
            };
            format!("repairs are paused {end}; it is watched as before{running}")
        }
        Done::Resumed { ended, still } => {
            let own = ended.iter().filter(|scope| matches!(scope, Scope::Volume(_))).count();
            let all = if own < ended.len() && own > 0 {
                format!(", also of {own} volumes paused by name")
            } else {
                String::new()
            };
            match still {
                None => format!("repairs go on{all}"),
                Some(pause) => format!("its own pause is over, and all repairs are {}", paused(pause, clock)),
            }
        }
        Done::Remounting(plan) => format!("plan {} is carried out", plan.id),
        Done::Forgotten { paused: None } => "all that was kept of it is forgotten".to_owned(),
        Done::Forgotten { paused: Some(pause) } => format!(
            "all that was kept of it is forgotten but its pause: repairs are {}; end that with `mountie resume`",
            paused(pause, clock)
        ),
    };
    let is_kept = kept || matches!(done, Done::Remounting(_));
    if is_kept {
        return text;
    }
    format!(
        "{text}; but that could not be written to the state directory: a restart of the agent does not know of it"
    )
}

/// What an action touches.
pub(crate) fn touches(action: &Action, plan: &Plan) -> String {
    let (mountpoint, stage) = (&plan.mountpoint, &plan.stage);
    let old = plan.old.map_or_else(|| "nothing".to_owned(), |old| format!("superblock {old}"));
    match action {
        Action::Stage { method: Method::Mount, source, .. } => format!(
            "makes a new mount at the private place {stage} and asks what is behind {}; {mountpoint} stays as it is",
            hide(&escape(source))
        ),
        Action::Stage { method: Method::Fstab, .. } => format!(
            "makes a new mount at the private place {stage} of what /etc/fstab says of {mountpoint}, which stays as it is"
        ),
        Action::Stage { method: Method::Systemd(unit), .. } => {
            format!("whatever {unit} does, at the private place {stage}; {mountpoint} stays as it is")
        }
        Action::Stage { method: Method::Command(argv), .. } => format!(
            "whatever {} does, which is told to mount at the private place {stage}; {mountpoint} stays as it is",
            program_name(argv)
        ),
        Action::CheckStaged { .. } => format!("reads the new mount at {stage}; changes nothing"),
        Action::CheckSource { .. } => "reads the device; changes nothing".to_owned(),
        Action::MountAgain => format!("{mountpoint} shows {old} again, read-only, where no new mount came"),
        Action::UnmountOld => {
            format!(
                "takes {old} away from {mountpoint}, which is empty until the new one is shown; only if nobody uses it"
            )
        }
        Action::Swap { .. } => {
            format!("{mountpoint} shows the new mount instead of {old}; open files stay on the old one")
        }
        Action::CoverConsumers { reach, .. } => format!(
            "takes {old} away from every other place where it is mounted, {}: each is guarded and empty until the new one \
             is shown; only if nobody uses any of them",
            reach_words(*reach)
        ),
        Action::SwapConsumers { reach, .. } => format!(
            "each other place where {old} or its guard is mounted, {}, shows the same directory of the new mount; open \
             files stay on the old one",
            reach_words(*reach)
        ),
        Action::AbortConnection { .. } => {
            format!("ends the FUSE connection behind {mountpoint}: whoever waits in it gets an error")
        }
        Action::RestartUnit { unit, .. } => {
            format!("stops and starts {unit} and all that it runs; {mountpoint} is empty meanwhile")
        }
        Action::RunInPlace { argv, .. } => format!("whatever {} does at {mountpoint}", program_name(argv)),
        Action::Verify { .. } => format!("reads {mountpoint}; changes nothing"),
        Action::DetachTop => format!("takes {old} away from {mountpoint}, beneath which the new mount is"),
        Action::Unstage => {
            format!("the private place {stage}: unmounts what is left there, removes the empty directory")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent_core::id::PlanId;

    use super::*;
    use crate::export::sample::{mount_plan, seconds};

    fn clock() -> WallClock {
        WallClock { at: seconds(1000), wall: Duration::from_secs(1_769_860_800) }
    }

    #[test]
    fn every_refusal_says_what_to_do_or_is_plain() {
        let by = agent_core::health::loss::Actor { uid: 0, pid: 7, comm: "mountie".into() };
        let until = Some(seconds(2000));
        let pause = Pause {
            since: seconds(990),
            since_wall: None,
            until,
            by,
            reason: Some("password=Zx9 moves".into()),
        };
        let text = refused(&Refused::Paused(pause.clone()), clock());
        assert_eq!(
            text,
            "repairs are paused by uid 0 (mountie, process 7) since 2026-01-31T11:59:50Z until 2026-01-31T12:16:40Z \
             (password=*** moves); end that with `mountie resume`"
        );
        let before_boot = Pause { since_wall: Some(Duration::from_secs(1_700_000_000)), ..pause };
        let text = paused(&before_boot, clock());
        assert!(text.contains("since 2023-11-14T22:13:20Z"), "{text}");
        for one in [
            Refused::Off,
            Refused::Found,
            Refused::Incomplete(Lack::Source),
            Refused::Idle,
            Refused::Occupied,
            Refused::Busy(PlanId(3)),
            Refused::Unsettled,
            Refused::Looking,
        ] {
            assert!(refused(&one, clock()).contains([';', ':']), "{one:?}");
        }
    }

    #[test]
    fn forgetting_says_that_a_pause_holds_on() {
        let by = agent_core::health::loss::Actor { uid: 0, pid: 7, comm: "mountie".into() };
        let pause = Pause { since: seconds(990), since_wall: None, until: None, by, reason: None };
        let text = done(&Done::Forgotten { paused: Some(pause) }, true, clock());
        assert!(
            text.contains("but its pause: repairs are paused by uid 0") && text.contains("mountie resume"),
            "{text}"
        );
        assert!(!done(&Done::Forgotten { paused: None }, true, clock()).contains("pause"));
    }

    #[test]
    fn each_step_says_what_it_touches_and_no_secret() {
        let mut plan = mount_plan("models");
        if let Some(Action::Stage { source, .. }) = plan.actions.first_mut() {
            *source = b"https://ann:hunter2@dav/".to_vec();
        }
        plan.actions.extend([Action::UnmountOld, Action::DetachTop]);
        let argv = vec!["/sbin/fix".into(), "hunter2".into()];
        plan.actions.push(Action::RunInPlace { argv, environment_file: None });
        plan.actions.push(Action::AbortConnection { daemon: Some(7), is_proven: true });
        plan.actions.push(Action::RestartUnit { unit: "models.service".into(), daemon: None });
        for action in &plan.actions {
            let text = touches(action, &plan);
            assert!(text.contains("/mnt/models") || text.contains("/run/mountie/stage/7"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
