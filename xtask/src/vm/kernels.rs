//! The table of kernels, oldest first, and which package of a suite is one of them.

use std::cmp::Ordering;

use super::packages::Package;

/// One column of the table of results.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Series {
    /// What people call it, and how its packages' names begin.
    pub(crate) name: &'static str,
    /// The suite of the distribution that has it.
    pub(crate) suite: &'static str,
    /// Why it is here.
    pub(crate) why: &'static str,
}

/// Every kernel that the agent is tried on.
pub(crate) const ALL: &[Series] = &[
    Series { name: "5.10", suite: "bullseye-security", why: "Debian 11; the oldest with all that is needed" },
    Series { name: "6.1", suite: "bookworm-security", why: "Debian 12; before the mount beneath (6.5)" },
    Series { name: "6.12", suite: "trixie-security", why: "Debian 13; with listmount and statmount" },
    Series { name: "6.18", suite: "trixie-backports", why: "long-term; with mount events of fanotify" },
    Series {
        name: "7.3",
        suite: "trixie-backports",
        why: "recent; with the generic report of file-system errors",
    },
];

/// The series of a name.
pub(crate) fn find(name: &str) -> Option<&'static Series> {
    ALL.iter().find(|series| series.name == name)
}

/// The newest image of a series: the plain one, not for clouds or real time, not the unsigned twin.
pub(crate) fn newest<'a>(packages: &'a [Package], series: &str) -> Option<&'a Package> {
    packages
        .iter()
        .filter(|package| release(&package.name).is_some_and(|release| is_plain(release, series)))
        .max_by(|a, b| compare(&a.version, &b.version))
}

/// `uname -r` of an image, from the name of its package.
pub(crate) fn release(package: &str) -> Option<&str> {
    package.strip_prefix("linux-image-")
}

fn is_plain(release: &str, series: &str) -> bool {
    let Some(rest) = release.strip_prefix(series).and_then(|rest| rest.strip_suffix("-amd64")) else {
        return false;
    };
    let (number, suite) = rest.split_once("+deb").unwrap_or((rest, ""));
    let has_only =
        |text: &str, others: &[char]| text.chars().all(|c| c.is_ascii_digit() || others.contains(&c));
    number.starts_with(['.', '-']) && has_only(number, &['.', '-']) && has_only(suite, &['.'])
}

/// The files of an image: the package itself, and those that newer images are split into.
pub(crate) fn parts<'a>(packages: &'a [Package], image: &'a Package) -> Vec<&'a Package> {
    let is_part = |name: &str| {
        ["linux-base-", "linux-binary-", "linux-modules-"].iter().any(|start| name.starts_with(start))
    };
    let find = |name: &String| packages.iter().find(|package| package.name == *name);
    let others = image.depends.iter().filter(|name| is_part(name)).filter_map(find);
    [image].into_iter().chain(others).collect()
}

/// Orders versions as Debian does: epoch, upstream version and revision are compared alike, in runs of
/// non-digits and of digits; `~` sorts before the end, letters before anything else.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let (epoch_a, a) = a.split_once(':').unwrap_or(("0", a));
    let (epoch_b, b) = b.split_once(':').unwrap_or(("0", b));
    let (upstream_a, revision_a) = a.rsplit_once('-').unwrap_or((a, ""));
    let (upstream_b, revision_b) = b.rsplit_once('-').unwrap_or((b, ""));
    compare_part(epoch_a, epoch_b)
        .then_with(|| compare_part(upstream_a, upstream_b))
        .then_with(|| compare_part(revision_a, revision_b))
}

fn compare_part(mut a: &str, mut b: &str) -> Ordering {
    while !(a.is_empty() && b.is_empty()) {
        let (words_a, rest_a) = a.split_at(a.find(|c: char| c.is_ascii_digit()).unwrap_or(a.len()));
        let (words_b, rest_b) = b.split_at(b.find(|c: char| c.is_ascii_digit()).unwrap_or(b.len()));
        let order = compare_words(words_a, words_b);
        if order.is_ne() {
            return order;
        }
        let (number_a, rest_a) =
            rest_a.split_at(rest_a.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest_a.len()));
        let (number_b, rest_b) =
            rest_b.split_at(rest_b.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest_b.len()));
        let (number_a, number_b) = (number_a.trim_start_matches('0'), number_b.trim_start_matches('0'));
        let order = number_a.len().cmp(&number_b.len()).then_with(|| number_a.cmp(number_b));
        if order.is_ne() {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
    Ordering::Equal
}

fn compare_words(a: &str, b: &str) -> Ordering {
    let rank = |c: Option<char>| match c {
        Some('~') => -1,
        None => 0,
        Some(c) if c.is_ascii_alphabetic() => i64::from(u32::from(c)),
        Some(c) => i64::from(u32::from(c)) + 256,
    };
    let (mut a, mut b) = (a.chars(), b.chars());
    loop {
        let (next_a, next_b) = (a.next(), b.next());
        let order = rank(next_a).cmp(&rank(next_b));
        if order.is_ne() || next_a.is_none() {
            return order;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str, depends: &[&str]) -> Package {
        let depends = depends.iter().map(|&name| name.to_owned()).collect();
        Package { name: name.to_owned(), version: version.to_owned(), depends }
    }

    #[test]
    fn versions_are_ordered_as_debian_orders_them() {
        let sorted = [
            "5.10.9-1",
            "5.10.46-1",
            "6.1~rc1-1",
            "6.1-1~bpo12+1",
            "6.1-1",
            "6.1-1+b1",
            "6.1-2",
            "6.1.0-1",
            "6.10-1",
            "1:1.0",
        ];
        for (at, a) in sorted.iter().enumerate() {
            for (other, b) in sorted.iter().enumerate() {
                assert_eq!(compare(a, b), at.cmp(&other), "{a} {b}");
            }
        }
        assert_eq!(compare("6.01-1", "6.1-1"), Ordering::Equal);
    }

    #[test]
    fn the_newest_plain_image_of_a_series_is_taken() {
        let packages = [
            package("linux-image-6.1.0-9-amd64", "6.1.27-1", &[]),
            package("linux-image-6.1.0-57-amd64", "6.1.192-3", &[]),
            package("linux-image-6.1.0-99-cloud-amd64", "6.1.999-1", &[]),
            package("linux-image-6.1.0-99-rt-amd64", "6.1.999-1", &[]),
            package("linux-image-6.1.0-99-amd64-dbg", "6.1.999-1", &[]),
            package("linux-image-6.12.118+deb13-amd64", "6.12.118-1", &[]),
            package("linux-image-6.12.119+deb13-rt-amd64", "6.12.119-1", &[]),
            package("linux-image-amd64", "6.12.118-1", &[]),
        ];
        let name = |series| newest(&packages, series).map(|package| package.name.as_str());
        assert_eq!(name("6.1"), Some("linux-image-6.1.0-57-amd64"));
        assert_eq!(name("6.12"), Some("linux-image-6.12.118+deb13-amd64"));
        assert_eq!(name("6"), Some("linux-image-6.12.118+deb13-amd64"));
        assert_eq!(name("5.10"), None);
    }

    #[test]
    fn a_split_image_comes_with_its_parts() {
        let packages = [
            package(
                "linux-image-7.3.4+deb13-amd64",
                "7.3.4-1",
                &["kmod", "linux-base", "linux-modules-7.3.4"],
            ),
            package("linux-modules-7.3.4", "7.3.4-1", &[]),
            package("linux-base", "4.9", &[]),
        ];
        let names: Vec<_> = parts(&packages, &packages[0]).iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["linux-image-7.3.4+deb13-amd64", "linux-modules-7.3.4"]);
    }

    #[test]
    fn every_series_has_a_name_of_its_own() {
        for series in ALL {
            assert_eq!(find(series.name), Some(series));
            assert!(!series.why.is_empty());
        }
        assert_eq!(find("2.4"), None);
    }
}
