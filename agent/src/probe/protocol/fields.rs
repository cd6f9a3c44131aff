//! Integers and byte strings to and from a body. Lengths are checked before anything is taken.

use agent_core::id::SuperblockId;

use super::Malformed;

/// Appends to a body.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// A length of eight bytes and the bytes: whatever is too long is refused as a whole, by `frame`.
    pub(super) fn bytes(&mut self, value: &[u8]) {
        self.u64(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    pub(super) fn list<T>(&mut self, values: &[T], write: impl Fn(&mut Self, &T)) {
        self.u64(values.len() as u64);
        for value in values {
            write(self, value);
        }
    }

    pub(super) fn superblock(&mut self, value: SuperblockId) {
        self.u32(value.major);
        self.u32(value.minor);
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// Takes from a body.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// Nothing may be left.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(Malformed::Unknown { what: "flag", value }),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.u64()?).map_err(|_| Malformed::Short)?;
        let (head, rest) = self.0.split_at_checked(length).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?.to_vec();
        String::from_utf8(bytes).map_err(|_| Malformed::NotText)
    }

    /// Nothing is allocated for elements that are not there, whatever length is announced.
    pub(super) fn list<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let length = self.u64()?;
        let mut values = Vec::new();
        for _ in 0..length {
            values.push(read(self)?);
        }
        Ok(values)
    }

    pub(super) fn superblock(&mut self) -> Result<SuperblockId, Malformed> {
        Ok(SuperblockId { major: self.u32()?, minor: self.u32()? })
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }
}
