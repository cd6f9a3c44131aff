//! The words in which people describe what they found, mapped to the product's own names, once. Cases say
//! `words::full`, and how the product spells it stands here.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::agent::{Agent, has_reason, is_in_state};
use super::scrape::Scrape;

/// States that count as sick.
const SICK: [&str; 3] = ["degraded", "recovering", "quarantined"];

/// Mounted where and as it should be, and answering.
///
/// # Errors
/// When the volume has not exactly one state.
pub fn healthy(scrape: &Scrape, volume: &str) -> Result<bool> {
    is_in_state(scrape, volume, "healthy")
}

/// Sick for this reason, repaired or not.
///
/// # Errors
/// When the volume has not exactly one state, or there is no such reason.
pub fn sick(scrape: &Scrape, volume: &str, reason: &str) -> Result<bool> {
    Ok(is_sick(scrape, volume)? && has_reason(scrape, volume, reason)?)
}

/// Sick, for whatever reason.
///
/// # Errors
/// When the volume has not exactly one state.
pub fn is_sick(scrape: &Scrape, volume: &str) -> Result<bool> {
    for state in SICK {
        if is_in_state(scrape, volume, state)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Storage answers, but there is no space or no quota. Advice, and no fault.
///
/// # Errors
/// As for [`healthy`].
pub fn full(scrape: &Scrape, volume: &str) -> Result<bool> {
    advised(scrape, volume, "full")
}

/// The agent itself may not look. Advice, and no fault.
///
/// # Errors
/// As for [`healthy`].
pub fn inaccessible(scrape: &Scrape, volume: &str) -> Result<bool> {
    advised(scrape, volume, "inaccessible")
}

/// Only an automount trap is there. Advice, and no fault.
///
/// # Errors
/// As for [`healthy`].
pub fn idle(scrape: &Scrape, volume: &str) -> Result<bool> {
    advised(scrape, volume, "idle")
}

fn advised(scrape: &Scrape, volume: &str, advice: &str) -> Result<bool> {
    Ok(has_reason(scrape, volume, advice)? && !is_sick(scrape, volume)?)
}

/// Entries of the mount table at the volume's place.
///
/// # Errors
/// When there is no such series.
pub fn stack_depth(scrape: &Scrape, volume: &str) -> Result<f64> {
    scrape.value("mountie_mount_stack_depth", &[("volume", volume)])
}

/// Lines of the mount table that were not understood.
///
/// # Errors
/// When there is no such series.
pub fn bad_lines(scrape: &Scrape) -> Result<f64> {
    scrape.value("mountie_mount_table_bad_lines_total", &[])
}

/// Whether a source of facts works.
///
/// # Errors
/// When there is no such source.
pub fn source_is_up(scrape: &Scrape, source: &str) -> Result<bool> {
    Ok(scrape.value("mountie_source_up", &[("source", source)])? > 0.0)
}

/// Repairs of a volume that ended like this.
#[must_use]
pub fn repairs(scrape: &Scrape, volume: &str, outcome: &str) -> f64 {
    scrape.sum("mountie_remediation_total", &[("volume", volume), ("outcome", outcome)])
}

/// Nothing was repaired, for nobody.
///
/// # Errors
/// When something was.
pub fn untouched(scrape: &Scrape) -> Result<()> {
    let repairs = scrape.sum("mountie_remediation_total", &[]);
    ensure!(repairs == 0.0, "{repairs} repairs");
    Ok(())
}

/// The superblock of a volume as people are shown it, `major:minor`.
///
/// # Errors
/// When the volume has no or more than one line.
pub fn device(scrape: &Scrape, volume: &str) -> Result<String> {
    let labels = [("volume", volume)];
    let mut lines = scrape.matching("mountie_volume_info", &labels);
    let (Some((labels, _)), None) = (lines.next(), lines.next()) else {
        bail!("not one line about {volume}")
    };
    Ok(labels.get("device").cloned().unwrap_or_default())
}

/// The names of all volumes.
#[must_use]
pub fn volumes(scrape: &Scrape) -> Vec<String> {
    let states = scrape.matching("mountie_volume_state", &[("state", "healthy")]);
    states.filter_map(|(labels, _)| labels.get("volume").cloned()).collect()
}

/// What a volume went through, oldest first: each state with its reason.
///
/// # Errors
/// When the agent does not say.
pub fn history(agent: &Agent, volume: &str) -> Result<Vec<(String, String)>> {
    let body: Value = serde_json::from_str(&agent.get("/api/v1/events")?.body)?;
    let events = body.get("events").and_then(Value::as_array).cloned().unwrap_or_default();
    let word = |event: &Value, key: &str| event.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    // Repairs are told of without a state.
    let of_volume =
        events.iter().rev().filter(|event| word(event, "volume") == volume && event.get("to").is_some());
    Ok(of_volume.map(|event| (word(event, "to"), word(event, "reason"))).collect())
}

/// It was never sick since the agent started.
///
/// # Errors
/// When it was.
pub fn was_never_sick(agent: &Agent, volume: &str) -> Result<()> {
    let history = history(agent, volume)?;
    ensure!(!history.iter().any(|(state, _)| SICK.contains(&state.as_str())), "{volume}: {history:?}");
    Ok(())
}
