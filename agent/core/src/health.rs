//! From evidence to state: the state machine of one volume.
//!
//! Two functions, kept apart. [`rules::judge`] classifies the evidence of this moment ([`Verdict`]); it knows no
//! history. [`step`] adds history: what a verdict means depends on where the volume comes from.
//!
//! * **Signals.** Probes, counts of kernel errors, and the mount table. Kernel errors are hints: they make a
//!   volume suspect and bring on a probe, and only the two together, or many errors that no probe can try,
//!   make it sick.
//! * **Cold start.** `Unknown` until the first look. A look that was not possible proves nothing: the volume stays
//!   what it was, and becomes `Unknown` when its last good look is too old to speak for it.
//! * **The way down** is as fast as the evidence: a sick verdict makes the volume `Degraded` at once.
//! * **The way back** leads through `Probation`: the verdict must stay free of suspicion for the settle time, and
//!   a probe that began within it must be good. Suspicion in probation does not change the state, it starts the
//!   settle time again: the volume is neither sick nor believed. Doubt that lasts as long as that makes it suspect,
//!   and after its end the settle time begins. That doubles with every recent fall.
//! * **Ties.** The strongest rule names the reason: sick before suspect, then the order of
//!   [`crate::verdict::Reason::ALL`], then the order of the table of rules.
//! * **Never stuck.** Every state but `Unknown` is left by a healthy verdict alone, `Quarantined` too: nobody has to
//!   restart the agent after a repair by hand. Where no look was ever let in, none can bring that verdict: there a fall
//!   ends when a look is refused as ever and nothing else speaks against the volume. Where looks have become
//!   impossible, a fall that the mount table alone told of ends with what the table says.
//! * **Damping** slows repairs and belief, never sight: a volume that flaps is still seen to fall at once.

use crate::verdict::{HealthState, Reason, Verdict};

pub mod cause;
pub mod claims;
pub mod evidence;
pub mod loss;
pub mod meaning;
pub mod message;
pub mod rules;
pub mod table;
pub mod window;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// What can move the state of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The evidence was judged.
    Judged(Verdict),
    /// The settle time has passed, and a probe that began within it was good.
    Settled,
    /// A plan for the volume began.
    PlanStarted,
    /// A plan for the volume did not do what it should.
    PlanFailed,
    /// No more attempts are allowed.
    BudgetSpent,
    /// The operator changed the volume's specification: attempts are counted anew.
    BudgetRenewed,
    /// The volume has been suspect for longer than the settle time.
    Doubted(Reason),
    /// The doubt that had ended probation is over, or nothing was known meanwhile.
    Undoubted,
    /// Nothing speaks against the volume any more, and no look will ever speak for it.
    OutOfSight,
    /// Another mount is at the volume's place: nothing is known about it.
    Replaced,
    /// Only an automount trap is left: nothing to judge, and not a fault.
    Idle,
    /// The volume is not watched, or was unmounted without being expected.
    Unwatched,
}

/// The state that follows.
#[must_use]
pub const fn step(state: HealthState, event: Event) -> HealthState {
    use Event as E;
    use HealthState as S;
    use Verdict as V;
    match (state, event) {
        (_, E::Unwatched | E::OutOfSight) => S::Unknown,

        (S::Unknown | S::Healthy | S::Suspect, E::Judged(V::Unknown)) => S::Unknown,
        (S::Unknown | S::Healthy | S::Suspect, E::Judged(V::Healthy)) => S::Healthy,
        (S::Unknown | S::Healthy | S::Suspect, E::Judged(V::Suspect(_))) => S::Suspect,
        (S::Unknown | S::Healthy | S::Suspect, E::Judged(V::Sick(_))) => S::Degraded,
        (S::Unknown | S::Healthy | S::Suspect, E::Replaced) => S::Unknown,

        // A fall needs proof to end: no evidence is not good news.
        (S::Degraded, E::Judged(V::Unknown | V::Sick(_)) | E::Replaced) => S::Degraded,
        (S::Degraded, E::Judged(V::Healthy | V::Suspect(_))) => S::Probation,
        (S::Degraded, E::PlanStarted) => S::Recovering,
        (S::Degraded, E::BudgetSpent) => S::Quarantined,

        // Judged only after the plan has ended well: the look at its work.
        (S::Recovering, E::Judged(V::Unknown) | E::Replaced) => S::Recovering,
        (S::Recovering, E::Judged(V::Healthy | V::Suspect(_))) => S::Probation,
        (S::Recovering, E::Judged(V::Sick(_)) | E::PlanFailed) => S::Degraded,
        (S::Recovering, E::BudgetSpent) => S::Quarantined,

        (S::Probation, E::Judged(V::Unknown | V::Healthy | V::Suspect(_)) | E::Replaced) => S::Probation,
        (S::Probation, E::Judged(V::Sick(_))) => S::Degraded,
        (S::Probation, E::Settled) => S::Healthy,
        // Whoever only waits for it to be believed would never learn of a doubt that stays.
        (S::Probation, E::Doubted(_)) => S::Suspect,
        (S::Unknown | S::Suspect, E::Undoubted) => S::Probation,

        (S::Quarantined, E::Judged(V::Unknown | V::Sick(_)) | E::Replaced) => S::Quarantined,
        (S::Quarantined, E::Judged(V::Healthy | V::Suspect(_))) => S::Probation,
        (S::Quarantined, E::BudgetRenewed) => S::Degraded,

        (S::Healthy, E::Idle) => S::Healthy,
        (S::Unknown | S::Suspect | S::Degraded | S::Recovering | S::Probation | S::Quarantined, E::Idle) => {
            S::Unknown
        }

        // Events that say nothing in this state.
        (
            S::Unknown | S::Healthy | S::Suspect | S::Degraded | S::Recovering | S::Quarantined,
            E::Doubted(_),
        ) => state,
        (S::Healthy | S::Degraded | S::Recovering | S::Probation | S::Quarantined, E::Undoubted) => state,
        (S::Unknown | S::Healthy | S::Suspect, E::Settled | E::PlanStarted | E::PlanFailed) => state,
        (S::Unknown | S::Healthy | S::Suspect, E::BudgetSpent | E::BudgetRenewed) => state,
        (S::Degraded, E::Settled | E::PlanFailed | E::BudgetRenewed) => state,
        (S::Recovering, E::Settled | E::PlanStarted | E::BudgetRenewed) => state,
        (S::Probation, E::PlanStarted | E::PlanFailed | E::BudgetSpent | E::BudgetRenewed) => state,
        (S::Quarantined, E::Settled | E::PlanStarted | E::PlanFailed | E::BudgetSpent) => state,
    }
}
