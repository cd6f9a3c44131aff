//! Spans of time as people say them: the two largest units.

use std::time::Duration;

/// `45s`, `3m12s`, `5h07m`, `12d3h`; below one second in milliseconds.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.is_zero() => "0s".to_owned(),
        0 => format!("{}ms", duration.as_millis().max(1)),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The same for seconds as the API carries them. Nonsense becomes zero.
pub(crate) fn span_of_seconds(seconds: f64) -> String {
    span(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{span, span_of_seconds};
    use std::time::Duration;

    #[test]
    fn the_two_largest_units_are_shown() {
        let of = |seconds| span(Duration::from_secs(seconds));
        assert_eq!(
            [of(0), of(59), of(60), of(3599), of(3600), of(86_399), of(90_000)],
            ["0s", "59s", "1m00s", "59m59s", "1h00m", "23h59m", "1d1h"]
        );
        assert_eq!(span_of_seconds(0.012), "12ms");
        assert_eq!(span_of_seconds(0.0001), "1ms");
        assert_eq!(span_of_seconds(f64::NAN), "0s");
    }
}
