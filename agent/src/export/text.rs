//! Writes the two text formats: that of Prometheus, version 0.0.4, and OpenMetrics, version 1.0.0.
//!
//! Trade-off: the crate `prometheus` has an encoder, but it wants every series as an object of several strings
//! each. With 1,000 volumes that is tens of thousands of allocations for every scrape. Most series here are read
//! straight from the snapshot, so they are written straight into the text, and histograms with them.

use std::fmt::{self, Display, Write};

use prometheus::proto::Histogram;

use super::metrics::table::Row;

/// How a scrape is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The text format of Prometheus, which every scraper reads.
    Prometheus,
    /// OpenMetrics, for who asks for it.
    OpenMetrics,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 2] = [Self::Prometheus, Self::OpenMetrics];

    /// What the answer says that it is.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Labels in the order in which they are written.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text so far.
#[derive(Debug)]
pub(crate) struct Text {
    format: Format,
    out: String,
}

impl Text {
    pub(crate) fn new(format: Format, bytes: usize) -> Self {
        Self { format, out: String::with_capacity(bytes) }
    }

    pub(crate) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    /// The head of a family. All its series must follow before the next head.
    pub(crate) fn family(&mut self, row: &Row) {
        let is_open = self.format == Format::OpenMetrics;
        let name = if is_open { row.base() } else { row.name };
        self.put(format_args!("# HELP {name} "));
        escape_into(&mut self.out, row.help, is_open);
        self.put(format_args!("\n# TYPE {name} {}\n", row.kind.word()));
        if let (true, Some(unit)) = (is_open, row.unit()) {
            self.put(format_args!("# UNIT {name} {unit}\n"));
        }
    }

    /// One series of the family `row`.
    pub(crate) fn sample(&mut self, row: &Row, labels: Labels<'_>, value: impl Display) {
        self.series(row.name, "", labels, None);
        self.put(format_args!(" {value}\n"));
    }

    /// The series of one histogram.
    pub(crate) fn histogram(&mut self, row: &Row, labels: Labels<'_>, histogram: &Histogram) {
        for bucket in histogram.get_bucket() {
            let bound = bucket.upper_bound();
            if bound.is_finite() {
                self.series(row.name, "_bucket", labels, Some(&self.bound(bound)));
                self.put(format_args!(" {}\n", bucket.cumulative_count()));
            }
        }
        let count = histogram.get_sample_count();
        self.series(row.name, "_bucket", labels, Some("+Inf"));
        self.put(format_args!(" {count}\n"));
        self.series(row.name, "_sum", labels, None);
        self.put(format_args!(" {}\n", histogram.get_sample_sum()));
        self.series(row.name, "_count", labels, None);
        self.put(format_args!(" {count}\n"));
    }

    /// OpenMetrics writes `1.0` where Prometheus writes `1`.
    fn bound(&self, bound: f64) -> String {
        match self.format {
            Format::Prometheus => bound.to_string(),
            Format::OpenMetrics => format!("{bound:?}"),
        }
    }

    fn series(&mut self, name: &str, suffix: &str, labels: Labels<'_>, bound: Option<&str>) {
        self.out.push_str(name);
        self.out.push_str(suffix);
        let bound = bound.map(|bound| ("le", bound));
        let mut separator = '{';
        for (label, value) in labels.iter().chain(&bound) {
            self.out.push(separator);
            self.out.push_str(label);
            self.out.push_str("=\"");
            escape_into(&mut self.out, value, true);
            self.out.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.out.push('}');
        }
    }

    fn put(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

/// Backslash and line feed are escaped everywhere, the quotation mark only inside quotation marks and in the help of
/// OpenMetrics.
fn escape_into(out: &mut String, text: &str, quoted: bool) {
    let needs_escape = |byte: u8| byte == b'\\' || byte == b'\n' || (quoted && byte == b'"');
    if !text.bytes().any(needs_escape) {
        out.push_str(text);
        return;
    }
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quoted => out.push_str("\\\""),
            other => out.push(other),
        }
    }
}
