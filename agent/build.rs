//! Builds or stubs the eBPF object; nothing else.
fn main() {}
