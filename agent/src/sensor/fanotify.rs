//! fanotify: file-system errors and mount events.
