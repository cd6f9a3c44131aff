//! Names as segments of a path: ids of volumes hold slashes, quotation marks and any letter.

use std::fmt::{self, Display, Write};

/// A value as one segment of a path: everything but the unreserved characters of RFC 3986 is encoded.
pub(crate) struct PercentEncoded<'a>(pub(crate) &'a str);

impl Display for PercentEncoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    f.write_char(char::from(byte))?
                }
                other => write!(f, "%{other:02X}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::PercentEncoded;

    #[test]
    fn a_name_is_one_segment() {
        assert_eq!(PercentEncoded("/mnt/a b\\xe9").to_string(), "%2Fmnt%2Fa%20b%5Cxe9");
        assert_eq!(PercentEncoded("models-7_3.a~").to_string(), "models-7_3.a~");
    }
}
