//! Facts about this host's kernel, gathered once.
