//! (Test only.) A strict reader of the text format, so that what a lenient scraper would forgive fails here:
//! HELP and TYPE exactly once and in front, families sorted and in one piece, no series twice, escapes valid,
//! histograms cumulative and complete.

use std::collections::BTreeMap;

/// One series: name with suffix, labels in order.
pub(crate) type Series = (String, Vec<(String, String)>);

/// Reads a text; the error says what is wrong with which line.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<Series, f64>, String> {
    let mut all = BTreeMap::new();
    let mut family: Option<(String, String)> = None;
    let mut help: Option<String> = None;
    if !text.ends_with('\n') {
        return Err("the last line does not end".to_owned());
    }
    for line in text.lines() {
        let fail = |why: &str| format!("{why}: {line}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').ok_or_else(|| fail("no help"))?;
            unescape(words, false).ok_or_else(|| fail("bad escape in help"))?;
            if family.as_ref().is_some_and(|(last, _)| last.as_str() >= name) {
                return Err(fail("families are not sorted or come twice"));
            }
            help = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| fail("no type"))?;
            if help.take().as_deref() != Some(name) {
                return Err(fail("TYPE without its HELP in front"));
            }
            family = Some((name.to_owned(), kind.to_owned()));
        } else {
            let (series, value) = sample(line).ok_or_else(|| fail("not a sample"))?;
            let (name, kind) = family.as_ref().ok_or_else(|| fail("sample without a family"))?;
            let suffix =
                series.0.strip_prefix(name.as_str()).ok_or_else(|| fail("sample of another family"))?;
            let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            if !suffixes.contains(&suffix) {
                return Err(fail("wrong suffix"));
            }
            if kind != "gauge" && value < 0.0 {
                return Err(fail("negative count"));
            }
            if all.insert(series, value).is_some() {
                return Err(fail("series comes twice"));
            }
        }
    }
    check_histograms(&all)?;
    Ok(all)
}

/// Every `_count` equals its `+Inf` bucket, and no bucket is below a smaller one.
fn check_histograms(all: &BTreeMap<Series, f64>) -> Result<(), String> {
    for ((name, labels), count) in all {
        let Some(base) = name.strip_suffix("_count") else { continue };
        let mut buckets: Vec<(f64, f64)> = all
            .iter()
            .filter(|((other, with_bound), _)| {
                *other == format!("{base}_bucket") && with_bound[..with_bound.len() - 1] == labels[..]
            })
            .map(|((_, with_bound), value)| {
                let bound = &with_bound[with_bound.len() - 1].1;
                (if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() }, *value)
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        let is_cumulative = buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1);
        if buckets.last() != Some(&(f64::INFINITY, *count)) || !is_cumulative {
            return Err(format!("histogram {base} {labels:?} is broken: {buckets:?}, count {count}"));
        }
    }
    Ok(())
}

fn sample(line: &str) -> Option<(Series, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = match series.split_once('{') {
        Some((name, rest)) => (name, labels(rest.strip_suffix('}')?)?),
        None => (series, Vec::new()),
    };
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':');
    (is_name && !name.is_empty()).then(|| ((name.to_owned(), labels), value))
}

fn labels(mut rest: &str) -> Option<Vec<(String, String)>> {
    let mut labels: Vec<(String, String)> = Vec::new();
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && !name.is_empty();
        if !is_name || labels.iter().any(|(known, _)| known == name) {
            return None;
        }
        let mut is_escaped = false;
        let end = after.find(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        })?;
        labels.push((name.to_owned(), unescape(&after[..end], true)?));
        match &after[end + 1..] {
            "" => return Some(labels),
            more => rest = more.strip_prefix(',')?,
        }
    }
}

fn unescape(text: &str, quoted: bool) -> Option<String> {
    let mut plain = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next()? {
                '\\' => plain.push('\\'),
                'n' => plain.push('\n'),
                '"' if quoted => plain.push('"'),
                _ => return None,
            },
            '\n' => return None,
            '"' if quoted => return None,
            other => plain.push(other),
        }
    }
    Some(plain)
}
