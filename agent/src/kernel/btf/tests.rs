//! Type information that is absent, cut, garbage or unknown gives a clear error; good one gives offsets.

use proptest::prelude::*;

use super::*;

/// A minimal file: `struct outer { int a; union { int b; struct { int c; int d; }; }; }`, little as it is.
fn sample() -> Vec<u8> {
    let strings = b"\0int\0outer\0a\0b\0c\0d\0";
    let at = |name: &str| {
        let needle = [b"\0", name.as_bytes(), b"\0"].concat();
        u32::try_from(strings.windows(needle.len()).position(|part| part == needle).unwrap() + 1).unwrap()
    };
    let info = |kind: u32, members: u32| kind << 24 | members;
    let types: Vec<u32> = [
        vec![at("int"), info(1, 0), 4, 0x0100_0020],           // 1: int
        vec![0, info(4, 2), 8, at("c"), 1, 0, at("d"), 1, 32], // 2: struct { c, d }
        vec![0, info(5, 2), 8, at("b"), 1, 0, 0, 2, 0],        // 3: union { b, 2 }
        vec![at("outer"), info(4, 2), 12, at("a"), 1, 0, 0, 3, 32], // 4: struct outer
    ]
    .concat();
    let types_len = u32::try_from(types.len() * 4).unwrap();
    let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
    bytes.extend([1, 0]);
    for word in [24, 0, types_len, types_len, u32::try_from(strings.len()).unwrap()] {
        bytes.extend(u32::to_ne_bytes(word));
    }
    bytes.extend(types.iter().flat_map(|word| word.to_ne_bytes()));
    bytes.extend(strings);
    bytes
}

#[test]
fn members_of_unnamed_unions_are_found() {
    let mut types = KernelTypes::parse(&sample()).unwrap();
    assert_eq!(types.offset("outer", "a").unwrap(), 0);
    assert_eq!(types.offset("outer", "b").unwrap(), 4);
    assert_eq!(types.offset("outer", "d").unwrap(), 8);
    assert!(matches!(types.offset("outer", "e"), Err(BtfError::NoMember { .. })));
    assert!(matches!(types.offset("int", "e"), Err(BtfError::NoStructure { .. })));
    assert!(matches!(types.offset("absent", "e"), Err(BtfError::NoStructure { .. })));
}

#[test]
fn an_absent_file_is_named() {
    let error = KernelTypes::open(Path::new("/nonexistent/btf")).unwrap_err();
    assert!(matches!(error, BtfError::Read { .. }));
    assert!(error.to_string().contains("/nonexistent/btf"));
}

#[test]
fn empty_garbage_and_cut_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let whole = sample();
    let mut unknown_kind = whole.clone();
    unknown_kind[24 + 7] = 31;
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("garbage", vec![0x5a; 4096]),
        ("header", whole[..10].to_vec()),
        ("half", whole[..whole.len() / 2].to_vec()),
        ("unknown kind", unknown_kind),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = KernelTypes::open(&path).unwrap_err();
        assert!(matches!(error, BtfError::Unusable { .. }), "{name}: {error}");
    }
}

#[test]
fn the_running_kernel_tells_where_files_have_their_path() {
    let mut types = match KernelTypes::open(Path::new(VMLINUX)) {
        Ok(types) => types,
        Err(error) => {
            eprintln!("skipped: {error}");
            return;
        }
    };
    assert!(types.offset("file", "f_path").unwrap() > 0);
    assert_eq!(types.offset("path", "dentry").unwrap(), 8);
    assert!(types.offset("file", "no_such_field").is_err());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = KernelTypes::parse(&bytes);
    }

    #[test]
    fn one_wrong_byte_never_makes_it_panic(at in 0usize..150, value in any::<u8>()) {
        let mut bytes = sample();
        let at = at % bytes.len();
        bytes[at] = value;
        if let Ok(mut types) = KernelTypes::parse(&bytes) {
            let _ = types.offset("outer", "d");
        }
    }
}
