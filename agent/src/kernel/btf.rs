//! The running kernel's own description of its structures (BTF): offsets of fields.
//!
//! Released compilers for kernel programs emit no relocations for fields, so offsets are looked up here and
//! handed to the programs. A field that is not found is an answer, not a failure.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use btf_rs::{Btf, BtfType as _, Type};

/// Where the kernel shows its types.
///
/// kernel: kernel/bpf/sysfs_btf.c, since 5.4.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Larger files are not believed: real ones have 5 to 15 MB.
const LARGEST: usize = 256 << 20;

/// Unnamed members are followed so deep.
const DEEPEST: u32 = 8;

/// Why offsets could not be learnt.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file is not there or not readable.
    #[error("cannot read the kernel's type information at {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is empty, cut, or something else.
    #[error("the kernel's type information at {path} is not usable: {detail}")]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// Why.
        detail: String,
    },
    /// There is no such structure.
    #[error("this kernel has no struct {structure}")]
    NoStructure {
        /// Its name.
        structure: String,
    },
    /// The structure has no such field.
    #[error("this kernel has no field {structure}.{member}")]
    NoMember {
        /// The structure.
        structure: String,
        /// The field.
        member: String,
    },
}

/// Parsed types of a kernel.
pub struct KernelTypes {
    btf: Btf,
    structures: HashMap<String, Vec<u32>>,
}

impl std::fmt::Debug for KernelTypes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KernelTypes").finish_non_exhaustive()
    }
}

impl KernelTypes {
    /// Reads and parses the file.
    ///
    /// # Errors
    /// When it is absent, empty, cut or not type information this version understands.
    pub fn open(path: &Path) -> Result<Self, BtfError> {
        let bytes = std::fs::read(path).map_err(|source| BtfError::Read { path: path.to_owned(), source })?;
        Self::parse(&bytes)
            .map_err(|detail| BtfError::Unusable { path: path.to_owned(), detail: detail.to_string() })
    }

    fn parse(bytes: &[u8]) -> Result<Self, btf_rs::Error> {
        check_header(bytes)?;
        let btf = Btf::from_bytes(bytes)?;
        Ok(Self { btf, structures: HashMap::new() })
    }

    /// Offset of a field, in bytes. Fields of unnamed unions and structures belong to the one around them: on
    /// some kernels `file.f_path` lies in one.
    ///
    /// # Errors
    /// When there is no such structure or field.
    pub fn offset(&mut self, structure: &str, member: &str) -> Result<u32, BtfError> {
        let no_structure = || BtfError::NoStructure { structure: structure.to_owned() };
        let ids = match self.structures.get(structure) {
            Some(ids) => ids.clone(),
            None => {
                let ids = self.btf.resolve_ids_by_name(structure).map_err(|_| no_structure())?;
                self.structures.insert(structure.to_owned(), ids.clone());
                ids
            }
        };
        let mut known = false;
        for id in ids {
            let Ok(Type::Struct(candidate)) = self.btf.resolve_type_by_id(id) else { continue };
            known = true;
            if let Some(bits) = self.bits(&candidate, member, DEEPEST) {
                return Ok(bits / 8);
            }
        }
        let no_member = BtfError::NoMember { structure: structure.to_owned(), member: member.to_owned() };
        Err(if known { no_member } else { no_structure() })
    }

    fn bits(&self, inside: &btf_rs::Struct, member: &str, depth: u32) -> Option<u32> {
        let depth = depth.checked_sub(1)?;
        inside.members.iter().find_map(|field| {
            let name = self.btf.resolve_name(field).unwrap_or_default();
            if name == member {
                return Some(field.bit_offset());
            }
            if !name.is_empty() {
                return None;
            }
            let nested = match self.btf.resolve_type_by_id(field.get_type_id()?) {
                Ok(Type::Struct(nested) | Type::Union(nested)) => nested,
                _ => return None,
            };
            field.bit_offset().checked_add(self.bits(&nested, member, depth)?)
        })
    }
}

/// Refuses what cannot be type information before the parser reserves memory for it.
///
/// kernel: `struct btf_header`, include/uapi/linux/btf.h, since 4.18.
fn check_header(bytes: &[u8]) -> Result<(), btf_rs::Error> {
    let bad = |what: &str| Err(btf_rs::Error::Format(what.to_owned()));
    if bytes.is_empty() {
        return bad("the file is empty");
    }
    if bytes.len() > LARGEST {
        return bad("the file is too large");
    }
    let word = |at: usize| {
        let field = bytes.get(at..)?.first_chunk::<4>()?;
        Some(usize::try_from(u32::from_ne_bytes(*field)).unwrap_or(usize::MAX))
    };
    if bytes.first_chunk::<2>() != Some(&0xeb9f_u16.to_ne_bytes()) {
        return bad("it does not begin with the mark of type information");
    }
    let (Some(header), Some(types), Some(types_len), Some(strings), Some(strings_len)) =
        (word(4), word(8), word(12), word(16), word(20))
    else {
        return bad("the header is cut");
    };
    let ends = |start: usize, len: usize| header.checked_add(start)?.checked_add(len);
    match (ends(types, types_len), ends(strings, strings_len)) {
        (Some(types), Some(strings)) if types <= bytes.len() && strings <= bytes.len() => Ok(()),
        _ => bad("the file is cut"),
    }
}

#[cfg(test)]
mod tests;
