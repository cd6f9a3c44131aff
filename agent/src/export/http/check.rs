//! `?check=true`: asks the event loop for a probe and waits for it, not beyond the deadline.
//!
//! The event loop keeps its own rules: a superblock has at most one probe out, and beside a probe that is stuck there
//! is no second one, for whichever volume. Such a volume is answered at once, as unanswered.

use std::time::Duration;

use agent_core::id::VolumeId;
use agent_core::status::VolumeStatus;
use agent_core::verdict::HealthState;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout_at};

use super::listen::Peer;
use super::{Command, Shared};
use crate::sys::clock;

/// Who asks over TCP has a volume looked at no sooner than this after the last look.
const LOOKS_APART: Duration = Duration::from_secs(1);

/// When a look is made for who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// After this time.
    In(Duration),
    /// Never: what is known is the answer.
    Never,
}

/// Whether and when a look is made for who asks. Over TCP anybody may ask: nobody there drives looks without end, least
/// of all those that write, nor keeps an automount from expiring. What hangs is asked about all the same: no second
/// look is made there, and the answer says so.
pub(super) fn turn(peer: Peer, volume: &VolumeStatus) -> Turn {
    if !matches!(peer, Peer::Remote(_)) || volume.stuck_since.is_some() {
        return Turn::In(Duration::ZERO);
    }
    if volume.condition.state == HealthState::Healthy && volume.is_automount {
        return Turn::Never;
    }
    let ended = volume.last_probe.as_ref().map(|(started, took, _)| *started + *took);
    let pause = ended.map(|ended| (ended + LOOKS_APART).since(clock::now()));
    Turn::In(pause.unwrap_or_default().min(LOOKS_APART))
}

/// Why there is no fresh answer.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unchecked {
    #[error("the probe has not answered")]
    NoAnswer,
    #[error("the volume is no longer there")]
    Vanished,
    #[error("too many checks are waiting; ask again, or without check=true")]
    TooMany,
    #[error("the agent is about to end")]
    Stopping,
}

/// Probes one volume after a pause and returns its status afterwards.
pub(super) async fn one(
    shared: &Shared,
    volume: VolumeId,
    pause: Duration,
) -> Result<VolumeStatus, Unchecked> {
    let _permit = shared.checks.try_acquire().map_err(|_| Unchecked::TooMany)?;
    sleep(pause).await;
    let answer = order(shared, volume, deadline(shared)).await?;
    wait(answer, deadline(shared)).await
}

/// Probes all, after the longest of their pauses, and returns those that have not answered.
pub(super) async fn all(
    shared: &Shared,
    volumes: Vec<(VolumeId, Duration)>,
) -> Result<Vec<VolumeId>, Unchecked> {
    let _permit = shared.checks_of_all.try_acquire().map_err(|_| Unchecked::TooMany)?;
    sleep(volumes.iter().map(|(_, pause)| *pause).max().unwrap_or_default()).await;
    let deadline = deadline(shared);
    let mut answers = Vec::new();
    let mut unanswered = Vec::new();
    // All are ordered before the first is awaited: the pool of workers decides how many run at once.
    for (volume, _) in volumes {
        match order(shared, volume.clone(), deadline).await {
            Ok(answer) => answers.push((volume, answer)),
            Err(Unchecked::Stopping) => return Err(Unchecked::Stopping),
            Err(_) => unanswered.push(volume),
        }
    }
    for (volume, answer) in answers {
        match wait(answer, deadline).await {
            // A volume that vanished meanwhile is not missed.
            Ok(_) | Err(Unchecked::Vanished) => {}
            Err(_) => unanswered.push(volume),
        }
    }
    Ok(unanswered)
}

fn deadline(shared: &Shared) -> Instant {
    // A deadline of the connection, not of the engine: tokio's own clock, which tests can pause.
    Instant::now() + shared.check_deadline()
}

type Answer = oneshot::Receiver<Option<VolumeStatus>>;

async fn order(shared: &Shared, volume: VolumeId, deadline: Instant) -> Result<Answer, Unchecked> {
    let (done, answer) = oneshot::channel();
    match timeout_at(deadline, shared.commands.send(Command::ProbeNow { volume, done })).await {
        Ok(Ok(())) => Ok(answer),
        Ok(Err(_)) => Err(Unchecked::Stopping),
        Err(_) => Err(Unchecked::NoAnswer),
    }
}

async fn wait(answer: Answer, deadline: Instant) -> Result<VolumeStatus, Unchecked> {
    match timeout_at(deadline, answer).await {
        Ok(Ok(Some(status))) if status.stuck_since.is_some() => Err(Unchecked::NoAnswer),
        Ok(Ok(Some(status))) => Ok(status),
        Ok(Ok(None)) => Err(Unchecked::Vanished),
        // The event loop dropped the order: it is ending, or the probe was overtaken by a new mount.
        Ok(Err(_)) | Err(_) => Err(Unchecked::NoAnswer),
    }
}
