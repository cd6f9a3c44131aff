//! System calls by number, so that a row is exactly the call that it names and not what a library makes of it.
#![expect(unsafe_code, reason = "system calls by number have no safe wrapper")]

use std::ffi::CStr;

use nix::errno::Errno;

use super::row::Returned;

/// One argument. What is an address borrows what is there for as long as the call takes.
pub(super) enum Arg<'a> {
    /// A number.
    Number(i64),
    /// A name.
    Text(&'a CStr),
    /// Room to read from or write to.
    Buffer(&'a mut [u8]),
}

impl From<i64> for Arg<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for Arg<'_> {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl<'a> From<&'a CStr> for Arg<'a> {
    fn from(text: &'a CStr) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a mut [u8]> for Arg<'a> {
    fn from(buffer: &'a mut [u8]) -> Self {
        Self::Buffer(buffer)
    }
}

impl Arg<'_> {
    fn word(&mut self) -> usize {
        match self {
            Self::Number(number) => *number as usize,
            Self::Text(text) => text.as_ptr() as usize,
            Self::Buffer(buffer) => buffer.as_mut_ptr() as usize,
        }
    }
}

/// Makes a system call. Arguments that are not given are zero.
pub(super) fn call(number: libc::c_long, arguments: &mut [Arg<'_>]) -> Returned {
    let mut words = [0; 6];
    for (word, argument) in words.iter_mut().zip(arguments) {
        *word = argument.word();
    }
    let [a, b, c, d, e, f] = words;
    // SAFETY: addresses are those of borrowed memory that lives until the call returns; each row says beside a
    // buffer how much of it the kernel may use, or gives more than the structure that the call writes.
    let returned = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    usize::try_from(returned).map_err(|_| Errno::last())
}

/// Makes a system call by its name in `libc`.
macro_rules! sys {
    ($number:ident $(, $argument:expr)* $(,)?) => {
        $crate::io::raw::call(libc::$number, &mut [$($crate::io::raw::Arg::from($argument)),*])
    };
}
pub(super) use sys;
