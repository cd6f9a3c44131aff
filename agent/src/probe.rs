//! Active checks by a pool of disposable worker processes.
