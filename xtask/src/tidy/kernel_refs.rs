//! Every kernel program says which kernel function it hangs on and since which version that exists.

use super::Source;

/// What makes a function a program: aya's attributes, and a section by hand.
const ATTRIBUTES: [&str; 15] = [
    "btf_tracepoint",
    "fentry",
    "fexit",
    "kprobe",
    "kretprobe",
    "lsm",
    "lsm_cgroup",
    "map_iter",
    "perf_event",
    "raw_tracepoint",
    "tracepoint",
    "unsafe(link_section",
    "unsafe(export_name",
    "uprobe",
    "uretprobe",
];

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter(|source| source.path.starts_with("agent-ebpf/src/programs"))
        .flat_map(|source| {
            without_reference(&source.text)
                .into_iter()
                .map(|line| {
                    format!(
                        "{}:{line}: a program without `kernel: FUNCTION, FILE, since VERSION` in the text above it",
                        source.path.display()
                    )
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Lines with a program's attribute whose own comment has no reference. One comment speaks for one program: a
/// reference elsewhere in the file does not count.
fn without_reference(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut comment = String::new();
    let mut pending = None;
    for (number, line) in text.lines().map(str::trim_start).enumerate() {
        if let Some(words) = line.strip_prefix("///") {
            comment.push_str(words);
        } else if let Some(attribute) = line.strip_prefix("#[") {
            if pending.is_none() && ATTRIBUTES.iter().any(|start| is_named(attribute, start)) {
                pending = Some(number.saturating_add(1));
            }
        } else {
            let complete = comment.contains("kernel: ") && comment.contains("since");
            found.extend(pending.take().filter(|_| !complete));
            comment.clear();
        }
    }
    found
}

/// Whether an attribute has exactly this name: `lsm` is not `lsm_cgroup`.
fn is_named(attribute: &str, name: &str) -> bool {
    attribute
        .strip_prefix(name)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_needs_a_reference_of_its_own() {
        let good = "/// kernel: `vfs_read`, fs/read_write.c, since 2.6.\n#[fexit(function = \"vfs_read\")]\npub fn a() {}\n";
        assert!(without_reference(good).is_empty());
        // The reference of a constant is not that of the program below it.
        let other =
            "/// kernel: lib/errseq.c, since 4.13\nconst A: u32 = 1;\n\n#[raw_tracepoint]\npub fn a() {}\n";
        assert_eq!(without_reference(other), [4]);
        let no_version = "/// kernel: `vfs_read`, fs/read_write.c.\n#[fexit]\npub fn a() {}\n";
        assert_eq!(without_reference(no_version), [2]);
    }

    #[test]
    fn a_section_by_hand_is_a_program_and_an_inlined_function_is_not() {
        let by_hand =
            "/// Walks.\n#[unsafe(no_mangle)]\n#[unsafe(link_section = \"iter/task\")]\npub fn a() {}\n";
        assert_eq!(without_reference(by_hand), [3]);
        assert!(without_reference("#[inline(always)]\nfn a() {}\n").is_empty());
        assert!(is_named("lsm(hook)]", "lsm") && !is_named("lsm_cgroup]", "lsm"));
    }
}
