//! Every development task of mountie.
fn main() {}
