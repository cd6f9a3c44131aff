//! The composition root: the only place where subsystems meet.
