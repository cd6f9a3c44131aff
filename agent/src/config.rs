//! The configuration: file, environment and flags into one validated `Config`.
