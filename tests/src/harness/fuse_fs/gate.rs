//! Every request passes here: it is answered, refused, delayed or held as the mode says.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::mode::{Mode, Treatment};
use super::stats::Counter;
use crate::harness::wait::pause;

/// How often a held request looks whether the mode has changed.
const HELD_LOOKS: Duration = Duration::from_millis(5);

/// How often a daemon without requests looks whether it shall end.
const IDLE_LOOKS: Duration = Duration::from_millis(20);

/// A reply that can carry an error.
pub(super) trait Reply: Send + 'static {
    fn refuse(self, errno: fuser::Errno);
}

macro_rules! reply {
    ($($name:ident)*) => {
        $(impl Reply for fuser::$name {
            fn refuse(self, errno: fuser::Errno) {
                self.error(errno);
            }
        })*
    };
}

reply! {
    ReplyAttr ReplyCreate ReplyData ReplyDirectory ReplyEmpty ReplyEntry ReplyIoctl ReplyOpen ReplyStatfs ReplyWrite
    ReplyXattr
}

/// The gate of one daemon. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    mode: PathBuf,
    counter: Counter,
}

impl Gate {
    pub(super) fn new(control: &Path) -> Self {
        Self { inner: Arc::new(Inner { mode: control.join("mode"), counter: Counter::new(control) }) }
    }

    /// Ends the daemon when it is told to die, also when nobody asks it anything.
    pub(super) fn watch(&self) {
        let gate = self.clone();
        std::thread::spawn(move || {
            loop {
                gate.treatment("lookup", "");
                pause(IDLE_LOOKS);
            }
        });
    }

    /// Treats one request. `answer` must count as the good answer; it may still find an error of its own
    /// (no such file), which is not an injected one.
    pub(super) fn pass<R: Reply>(
        &self,
        operation: &'static str,
        reply: R,
        answer: impl FnOnce(R) + Send + 'static,
    ) {
        self.pass_for(operation, String::new(), reply, answer);
    }

    /// The same for a request about a file whose name the mode may single out.
    pub(super) fn pass_for<R: Reply>(
        &self,
        operation: &'static str,
        file: String,
        reply: R,
        answer: impl FnOnce(R) + Send + 'static,
    ) {
        match self.treatment(operation, &file) {
            Treatment::Answer | Treatment::Die => self.answer(operation, reply, answer),
            Treatment::Fail(errno) => self.refuse(operation, reply, errno),
            Treatment::Delay(time) => {
                let gate = self.clone();
                std::thread::spawn(move || {
                    pause(time);
                    gate.answer(operation, reply, answer);
                });
            }
            Treatment::Hold => {
                self.inner.counter.held(operation);
                let gate = self.clone();
                // A thread for each held request: the threads that take requests stay free.
                std::thread::spawn(move || {
                    let treatment = gate.hold(operation, &file);
                    gate.inner.counter.released(operation);
                    match treatment {
                        Treatment::Fail(errno) => gate.refuse(operation, reply, errno),
                        _ => gate.answer(operation, reply, answer),
                    }
                });
            }
        }
    }

    fn hold(&self, operation: &str, file: &str) -> Treatment {
        loop {
            match self.treatment(operation, file) {
                Treatment::Hold => pause(HELD_LOOKS),
                other => return other,
            }
        }
    }

    fn answer<R: Reply>(&self, operation: &str, reply: R, answer: impl FnOnce(R)) {
        self.inner.counter.good(operation);
        answer(reply);
    }

    fn refuse<R: Reply>(&self, operation: &str, reply: R, errno: i32) {
        self.inner.counter.failed(operation, errno);
        reply.refuse(fuser::Errno::from_i32(errno));
    }

    /// What the mode says now. A mode that cannot be read is a mistake of the case: the daemon ends.
    fn treatment(&self, operation: &str, file: &str) -> Treatment {
        let text = fs::read_to_string(&self.inner.mode).map_err(anyhow::Error::from);
        match text.and_then(|text| text.parse::<Mode>()) {
            Ok(mode) => match mode.treat(operation, file) {
                Treatment::Die => std::process::exit(0),
                other => other,
            },
            Err(error) => {
                eprintln!("cannot read the mode: {error:#}");
                std::process::exit(1);
            }
        }
    }
}
