//! Every kernel program says which kernel function it hangs on and since which version that exists.

use super::Source;

pub(super) fn check(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter(|source| source.path.starts_with("agent-ebpf/src/programs"))
        .flat_map(|source| {
            let programs = source.text.lines().filter(|line| {
                let line = line.trim_start();
                ["#[raw_tracepoint", "#[fexit", "#[fentry", "#[btf_tracepoint", "#[unsafe(link_section"]
                    .iter()
                    .any(|start| line.starts_with(start))
            });
            let references = source
                .text
                .lines()
                .filter(|line| line.contains("kernel: ") && line.contains("since"))
                .count();
            (programs.count() > references).then(|| {
                format!(
                    "{}: a program without `kernel: FUNCTION, FILE, since VERSION`",
                    source.path.display()
                )
            })
        })
        .collect()
}
