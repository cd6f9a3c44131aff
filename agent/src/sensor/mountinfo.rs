//! The mount table: watch, read, parse.
