//! Writes the Prometheus text format, version 0.0.4.
//!
//! Trade-off: the crate `prometheus` has an encoder, but it wants every series as an object of several strings
//! each. With 1,000 volumes that is tens of thousands of allocations for every scrape. Most series here are read
//! straight from the snapshot, so they are written straight into the text, and histograms with them.

use std::fmt::{self, Display, Write};

use prometheus::proto::Histogram;

use super::metrics::table::Row;

/// The content type of the text format.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Labels in the order in which they are written.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text so far.
#[derive(Debug)]
pub(crate) struct Text {
    out: String,
}

impl Text {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { out: String::with_capacity(bytes) }
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }

    /// The head of a family. All its series must follow before the next head.
    pub(crate) fn family(&mut self, row: &Row) {
        self.put(format_args!("# HELP {} ", row.name));
        escape_into(&mut self.out, row.help, false);
        self.put(format_args!("\n# TYPE {} {}\n", row.name, row.kind.word()));
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
                self.series(row.name, "_bucket", labels, Some(&bound.to_string()));
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

/// Backslash and line feed are escaped everywhere, the quotation mark only inside quotation marks.
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
