//! The parser takes what a Prometheus server takes, and nothing else.

use super::Scrape;

const GOOD: &str = "\
# HELP a_total Things.
# TYPE a_total counter
a_total{volume=\"x\",errno=\"EIO\"} 3
a_total{volume=\"y \\\"q\\\" \\\\ \\n\",errno=\"EIO\"} 4
# HELP d_seconds Time.
# TYPE d_seconds histogram
d_seconds_bucket{le=\"+Inf\"} 2
d_seconds_sum 0.5
d_seconds_count 2
# HELP up Works.
# TYPE up gauge
up 1e3
";

#[test]
fn a_good_body_is_read_with_its_escapes() {
    let scrape = Scrape::parse(GOOD).unwrap();
    assert_eq!(scrape.value("a_total", &[("volume", "x")]).unwrap(), 3.0);
    assert_eq!(scrape.value("a_total", &[("volume", "y \"q\" \\ \n")]).unwrap(), 4.0);
    assert_eq!(scrape.sum("a_total", &[("errno", "EIO")]), 7.0);
    assert_eq!(scrape.value("up", &[]).unwrap(), 1000.0);
    assert_eq!(scrape.value("d_seconds_count", &[]).unwrap(), 2.0);
    assert_eq!(scrape.find("a_total", &[("volume", "z")]).unwrap(), None);
    assert!(scrape.find("a_total", &[]).is_err(), "two series match");
}

#[test]
fn bodies_that_a_server_refuses_are_refused() {
    let head = "# HELP a Things.\n# TYPE a gauge\n";
    for (what, body) in [
        ("a series twice", format!("{head}a 1\na 1\n")),
        ("a sample without TYPE", "a 1\n".to_owned()),
        ("TYPE twice", format!("{head}# TYPE a gauge\na 1\n")),
        ("HELP twice", format!("{head}# HELP a Again.\na 1\n")),
        ("an unknown type", "# HELP a A.\n# TYPE a thing\na 1\n".to_owned()),
        ("a family in two pieces", format!("{head}a 1\n# HELP b B.\n# TYPE b gauge\nb 1\na{{x=\"1\"}} 1\n")),
        ("a value that is no number", format!("{head}a one\n")),
        ("an odd escape", format!("{head}a{{x=\"\\x41\"}} 1\n")),
        ("a raw quote", format!("{head}a{{x=\"a\"b\"}} 1\n")),
        ("a label twice", format!("{head}a{{x=\"1\",x=\"2\"}} 1\n")),
        ("a bad label name", format!("{head}a{{1x=\"1\"}} 1\n")),
        ("no last line end", format!("{head}a 1")),
    ] {
        assert!(Scrape::parse(&body).is_err(), "{what} was accepted");
    }
}
