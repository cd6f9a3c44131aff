//! The running kernel's own description of its structures (BTF): offsets of fields.
//!
//! Released compilers for kernel programs emit no relocations for fields, so offsets are looked up here and
//! handed to the programs. A field that is not found is an answer, not a failure.

use std::path::{Path, PathBuf};

use btf_rs::{Btf, BtfType as _, Type};

mod format;

/// Where the kernel shows its types.
///
/// kernel: kernel/bpf/sysfs_btf.c, since 5.4.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Unnamed members are followed so deep, and chains of other names for a type so far.
const DEEPEST: u32 = 8;

/// Members looked at for one field, in all the structures that it may lie in. The largest real one, `task_struct`,
/// has some hundred; a file that was made up must not keep the agent busy.
const MOST_MEMBERS: u32 = 200_000;

/// Why offsets could not be learnt.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file is not there or not readable.
    #[error("cannot read the kernel's type information at {path}; `kernel.btf` names another place")]
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
    /// It may be there, in the part of the file that this version cannot read.
    #[error("{what} is not in the readable part of the kernel's type information: {cut}")]
    BeyondCut {
        /// The field, function or tracepoint.
        what: String,
        /// Where reading ended.
        cut: String,
    },
    /// There is no such structure.
    #[error("this kernel has no struct {structure}")]
    NoStructure {
        /// Its name.
        structure: String,
    },
    /// There is no such function, as far as types tell.
    #[error("this kernel has no function {function}")]
    NoFunction {
        /// Its name.
        function: String,
    },
    /// There is no such tracepoint, as far as types tell.
    #[error("this kernel has no tracepoint {tracepoint}")]
    NoTracepoint {
        /// Its name.
        tracepoint: String,
    },
    /// A tracepoint passes something else than what is known.
    #[error("the tracepoint {tracepoint} of this kernel does not pass ({wanted})")]
    OtherArguments {
        /// Its name.
        tracepoint: String,
        /// The types that were looked for, in order.
        wanted: String,
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

pub mod modules;
mod prototypes;

/// Parsed types of a kernel.
pub struct KernelTypes {
    btf: Btf,
    /// What of the file is not understood, in words.
    cut: Option<String>,
}

/// A function of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// Equal for functions with the same parameters and result.
    pub prototype: u32,
    /// For each parameter the structure that it points to; empty for any other.
    pub parameters: Vec<String>,
    /// Whether it returns a pointer: the verifier lets no program calculate with that.
    pub returns_pointer: bool,
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
    /// When it is absent, empty, cut or no type information. A kind that is not known here is no error: what
    /// comes before it is used.
    pub fn open(path: &Path) -> Result<Self, BtfError> {
        let bytes = format::read(path).map_err(|source| BtfError::Read { path: path.to_owned(), source })?;
        Self::parse(&bytes).map_err(|detail| BtfError::Unusable { path: path.to_owned(), detail })
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let prepared = format::prepare(bytes)?;
        let btf = Btf::from_bytes(&prepared.bytes).map_err(|error| error.to_string())?;
        Ok(Self { btf, cut: prepared.cut })
    }

    /// Offset of a field, in bytes; dots lead through structures within the structure: `("fuse_req", "out.h.error")`.
    /// Fields of unnamed unions and structures belong to the one around them: on some kernels `file.f_path` lies
    /// in one.
    ///
    /// # Errors
    /// When there is no such structure or field.
    pub fn offset(&self, structure: &str, fields: &str) -> Result<u32, BtfError> {
        let ids = self.btf.resolve_ids_by_name(structure).unwrap_or_default();
        let mut known = false;
        let mut members_left = MOST_MEMBERS;
        for id in ids {
            let Ok(Type::Struct(outer)) = self.btf.resolve_type_by_id(id) else { continue };
            known = true;
            if let Some(bits) = self.bits_within(outer, fields, &mut members_left) {
                return Ok(bits / 8);
            }
        }
        Err(self.absent(&format!("{structure}.{fields}"), || {
            let structure = structure.to_owned();
            if known {
                BtfError::NoMember { structure, member: fields.to_owned() }
            } else {
                BtfError::NoStructure { structure }
            }
        }))
    }

    /// What the kernel says of a function.
    ///
    /// # Errors
    /// When it has none of that name, as far as types tell.
    pub fn function(&self, name: &str) -> Result<Function, BtfError> {
        let ids = self.btf.resolve_ids_by_name(name).unwrap_or_default();
        let found = ids.into_iter().find_map(|id| {
            let Ok(Type::Func(function)) = self.btf.resolve_type_by_id(id) else { return None };
            let prototype = function.get_type_id()?;
            let Ok(Type::FuncProto(found)) = self.btf.resolve_type_by_id(prototype) else { return None };
            let points_to = |parameter| self.structure_behind(parameter).unwrap_or_default();
            let returned = self.btf.resolve_type_by_id(found.return_type_id());
            Some(Function {
                prototype,
                parameters: found.parameters.iter().map(points_to).collect(),
                returns_pointer: matches!(returned, Ok(Type::Ptr(_))),
            })
        });
        found.ok_or_else(|| self.absent(name, || BtfError::NoFunction { function: name.to_owned() }))
    }

    /// Why something was not found: of what lies beyond a cut nobody knows whether it is there.
    fn absent(&self, what: &str, otherwise: impl FnOnce() -> BtfError) -> BtfError {
        match &self.cut {
            Some(cut) => BtfError::BeyondCut { what: what.to_owned(), cut: cut.clone() },
            None => otherwise(),
        }
    }

    /// The structure that a parameter points to.
    fn structure_behind(&self, parameter: &btf_rs::Parameter) -> Option<String> {
        let mut next = parameter.get_type_id()?;
        let mut pointers = 0;
        for _ in 0..DEEPEST {
            next = match self.btf.resolve_type_by_id(next).ok()? {
                Type::Ptr(inner) => {
                    pointers += 1;
                    inner.get_type_id()?
                }
                Type::Const(inner) => inner.get_type_id()?,
                Type::Struct(found) if pointers == 1 => return self.btf.resolve_name(&found).ok(),
                _ => return None,
            };
        }
        None
    }

    fn bits_within(&self, outer: btf_rs::Struct, fields: &str, members_left: &mut u32) -> Option<u32> {
        let mut inside = Some(outer);
        fields.split('.').try_fold(0_u32, |sum, field| {
            let (bits, kind) = self.member(&inside.take()?, field, DEEPEST, members_left)?;
            inside = self.structure(kind);
            sum.checked_add(bits)
        })
    }

    /// Where a member lies, in bits, and its type.
    fn member(
        &self,
        inside: &btf_rs::Struct,
        wanted: &str,
        depth: u32,
        members_left: &mut u32,
    ) -> Option<(u32, u32)> {
        let depth = depth.checked_sub(1)?;
        inside.members.iter().find_map(|field| {
            *members_left = members_left.checked_sub(1)?;
            let name = self.btf.resolve_name(field).unwrap_or_default();
            let kind = field.get_type_id()?;
            if name == wanted {
                return Some((field.bit_offset(), kind));
            }
            if !name.is_empty() {
                return None;
            }
            let (bits, kind) = self.member(&self.structure(kind)?, wanted, depth, members_left)?;
            Some((field.bit_offset().checked_add(bits)?, kind))
        })
    }

    /// The structure or union that a type is, by whatever name: `file.f_path` is constant on new kernels.
    fn structure(&self, mut kind: u32) -> Option<btf_rs::Struct> {
        for _ in 0..DEEPEST {
            kind = match self.btf.resolve_type_by_id(kind).ok()? {
                Type::Struct(found) | Type::Union(found) => return Some(found),
                Type::Typedef(alias) => alias.get_type_id()?,
                Type::Const(inner) | Type::Volatile(inner) => inner.get_type_id()?,
                _ => return None,
            };
        }
        None
    }
}

#[cfg(test)]
mod tests;
