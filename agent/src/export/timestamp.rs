//! Wall-clock times as people and programs read them: RFC 3339, always UTC. No calendar crate is needed for that.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use agent_core::time::Monotonic;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const SECONDS_A_DAY: i64 = 86_400;

/// A point in wall-clock time: the time since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(Duration);

/// Why a text is not a time.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("`{text}` is not a time like 2026-01-31T23:59:59Z")]
pub struct NotATimestamp {
    text: String,
}

impl Timestamp {
    /// From the time since the epoch.
    #[must_use]
    pub const fn from_epoch(since_epoch: Duration) -> Self {
        Self(since_epoch)
    }

    /// The time since the epoch.
    #[must_use]
    pub const fn since_epoch(self) -> Duration {
        self.0
    }

    /// The time passed since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Seconds since the epoch, as metrics carry them.
    #[must_use]
    pub fn epoch_seconds(self) -> f64 {
        self.0.as_secs_f64()
    }

    /// Without the fraction of the second: for tables.
    #[must_use]
    pub const fn whole_seconds(self) -> Self {
        Self(Duration::from_secs(self.0.as_secs()))
    }
}

/// Pairs one moment of the two clocks, to turn times of the monotonic clock into wall-clock times.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    /// The moment on the monotonic clock.
    pub at: Monotonic,
    /// The same moment, since the epoch.
    pub wall: Duration,
}

impl WallClock {
    /// The wall-clock time of `time`. A step of the wall clock moves earlier times with it, so that ages stay right.
    #[must_use]
    pub fn at(self, time: Monotonic) -> Timestamp {
        let since_epoch = if time <= self.at {
            self.wall.saturating_sub(self.at.since(time))
        } else {
            self.wall.saturating_add(time.since(self.at))
        };
        Timestamp(since_epoch)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0.as_secs()).unwrap_or(i64::MAX);
        let (year, month, day) = date_of_day(seconds / SECONDS_A_DAY);
        let second = seconds % SECONDS_A_DAY;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        match self.0.subsec_millis() {
            0 => f.write_str("Z"),
            millis => write!(f, ".{millis:03}Z"),
        }
    }
}

impl FromStr for Timestamp {
    type Err = NotATimestamp;

    fn from_str(text: &str) -> Result<Self, NotATimestamp> {
        parse(text).ok_or_else(|| NotATimestamp { text: text.to_owned() })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time", "description": "A time as RFC 3339 has it, in UTC." })
    }
}

/// Year, month and day of a day since the epoch, in the Gregorian calendar. The year is counted from March
/// here, so that the leap day is its last day and every month before it has a fixed place.
const fn date_of_day(day: i64) -> (i64, i64, i64) {
    // 719,468 days lie between 0000-03-01 and 1970-01-01; 146,097 days are 400 years.
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + (month <= 2) as i64;
    (year, month, day_of_month)
}

/// The inverse of [`date_of_day`].
const fn day_of_date(year: i64, month: i64, day: i64) -> i64 {
    let year = year - (month <= 2) as i64;
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Takes exactly what [`Timestamp`] prints, with any number of digits in the fraction.
fn parse(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = match text.strip_suffix('Z')?.split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (text.strip_suffix('Z')?, "0"),
    };
    let (date, time) = whole.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let in_range = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = day_of_date(year, month, day);
    let seconds = u64::try_from(days * SECONDS_A_DAY + hour * 3600 + minute * 60 + second).ok()?;
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    Some(Timestamp(Duration::new(seconds, nanos)))
}

fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(|part| {
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse::<i64>().ok()).flatten()
    });
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(seconds: u64) -> Timestamp {
        Timestamp::from_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn known_dates_are_printed() {
        assert_eq!(epoch(0).to_string(), "1970-01-01T00:00:00Z");
        assert_eq!(epoch(951_782_400).to_string(), "2000-02-29T00:00:00Z");
        assert_eq!(epoch(1_709_251_199).to_string(), "2024-02-29T23:59:59Z");
        assert_eq!(epoch(4_107_542_400).to_string(), "2100-03-01T00:00:00Z");
        let fraction = Timestamp::from_epoch(Duration::from_millis(1_500_000_000_042));
        assert_eq!(fraction.to_string(), "2017-07-14T02:40:00.042Z");
    }

    #[test]
    fn every_day_of_eight_centuries_reads_back_as_printed() {
        for day in 0..800 * 366 {
            let time = epoch(day * 86_400 + day % 86_400);
            assert_eq!(time.to_string().parse(), Ok(time));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "now",
            "2026-01-01",
            "2026-13-01T00:00:00Z",
            "2026-01-01T00:00:00+01:00",
            "2026-01-01T00:00:00.Z",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn monotonic_times_become_wall_clock_times_on_both_sides_of_the_snapshot() {
        let second = 1_000_000_000;
        let clock = WallClock { at: Monotonic::from_nanos(100 * second), wall: Duration::from_secs(1000) };
        assert_eq!(clock.at(Monotonic::from_nanos(40 * second)), epoch(940));
        assert_eq!(clock.at(Monotonic::from_nanos(101 * second)), epoch(1001));
    }
}
