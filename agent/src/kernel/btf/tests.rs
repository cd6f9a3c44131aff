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
    let types = KernelTypes::parse(&sample()).unwrap();
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
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("garbage", vec![0x5a; 4096]),
        ("header", whole[..10].to_vec()),
        ("half", whole[..whole.len() / 2].to_vec()),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = KernelTypes::open(&path).unwrap_err();
        assert!(matches!(error, BtfError::Unusable { .. }), "{name}: {error}");
    }
}

#[test]
fn a_name_for_itself_ends_the_search() {
    let mut bytes = sample();
    // Type 1, the integer, becomes `typedef int int`, four bytes shorter: the rest moves up.
    let head: Vec<u8> = [8_u32 << 24, 1].into_iter().flat_map(u32::to_ne_bytes).collect();
    bytes.splice(24 + 4..24 + 16, head);
    for at in [12, 16] {
        let length = u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) - 4;
        bytes[at..at + 4].copy_from_slice(&length.to_ne_bytes());
    }
    let types = KernelTypes::parse(&bytes).unwrap();
    assert_eq!(types.offset("outer", "d").unwrap(), 8);
    assert!(matches!(types.offset("outer", "a.b"), Err(BtfError::NoMember { .. })));
}

#[test]
fn a_field_of_a_field_spends_the_same_budget() {
    let types = KernelTypes::parse(&Wide::bytes()).unwrap();
    assert!(matches!(types.offset("wide", "absent.absent"), Err(BtfError::NoMember { .. })));
    assert!(matches!(types.offset("wide", "wide.absent"), Err(BtfError::NoMember { .. })));
}

#[test]
fn a_function_or_tracepoint_beyond_the_cut_is_not_said_to_be_absent() {
    let whole = KernelTypes::parse(&sample()).unwrap();
    assert!(matches!(whole.function("f"), Err(BtfError::NoFunction { .. })));
    let mut bytes = sample();
    bytes[OUTER + 7] = 31;
    let cut = KernelTypes::parse(&bytes).unwrap();
    assert!(matches!(cut.function("f"), Err(BtfError::BeyondCut { .. })));
    assert!(matches!(cut.offset("outer", "a.b"), Err(BtfError::BeyondCut { .. })));
    assert!(matches!(cut.tracepoint_arguments("t"), Err(BtfError::BeyondCut { .. })));
}

/// The place of the type `outer`, the last one of the sample.
const OUTER: usize = 24 + 16 + 36 + 36;

#[test]
fn what_comes_before_an_unknown_kind_is_used_and_the_rest_is_named() {
    let mut bytes = sample();
    bytes[OUTER + 7] = 31;
    let types = KernelTypes::parse(&bytes).unwrap();
    let error = types.offset("outer", "a").unwrap_err().to_string();
    assert!(error.contains("outer.a") && error.contains("type 4 is of the unknown kind 31"), "{error}");
    // One more structure before it is still found.
    let mut named = sample();
    let name: [u8; 4] = named[OUTER..OUTER + 4].try_into().unwrap();
    named[24 + 16..24 + 20].copy_from_slice(&name);
    named[OUTER + 7] = 20;
    assert_eq!(KernelTypes::parse(&named).unwrap().offset("outer", "d").unwrap(), 4);
    // An unknown kind at the very beginning leaves nothing, which is told for each field.
    let mut first = sample();
    first[24 + 7] = 25;
    assert!(matches!(
        KernelTypes::parse(&first).unwrap().offset("outer", "a"),
        Err(BtfError::BeyondCut { .. })
    ));
}

#[test]
fn a_structure_that_holds_itself_ends_the_search() {
    // The unnamed structure's members are unnamed and of its own type: 8 levels of 2 in a sample, but a file could
    // have 65,535 at each.
    let mut bytes = sample();
    for member in 0..2 {
        let at = 24 + 16 + 12 + member * 12;
        bytes[at..at + 8].copy_from_slice(&[0_u32.to_ne_bytes(), 2_u32.to_ne_bytes()].concat());
    }
    let types = KernelTypes::parse(&bytes).unwrap();
    assert!(matches!(types.offset("outer", "d"), Err(BtfError::NoMember { .. })));
    let wide = Wide::bytes();
    let types = KernelTypes::parse(&wide).unwrap();
    assert!(matches!(types.offset("wide", "absent"), Err(BtfError::NoMember { .. })));
}

/// `struct wide { struct wide; … }`, 1,000 times: 1,000⁸ members without a limit.
struct Wide;

impl Wide {
    fn bytes() -> Vec<u8> {
        let strings = b"\0wide\0";
        let mut types = vec![1_u32, 4 << 24 | 1000, 8];
        types.extend([0, 1, 0].repeat(1000));
        let types_len = u32::try_from(types.len() * 4).unwrap();
        let mut bytes = [0xeb9f_u16.to_ne_bytes().as_slice(), &[1, 0]].concat();
        for word in [24, 0, types_len, types_len, u32::try_from(strings.len()).unwrap()] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend(types.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(strings);
        bytes
    }
}

#[test]
fn a_huge_file_a_device_and_a_pipe_are_refused_without_being_read() {
    let directory = tempfile::tempdir().unwrap();
    let huge = directory.path().join("huge");
    // Sparse, and larger than any memory: reading it in full would end the test.
    std::fs::File::create(&huge).unwrap().set_len(1 << 42).unwrap();
    let error = KernelTypes::open(&huge).unwrap_err().to_string();
    assert!(error.contains("too large"), "{error}");
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
    for path in [pipe.as_path(), Path::new("/dev/zero"), directory.path()] {
        assert!(matches!(KernelTypes::open(path), Err(BtfError::Read { .. })), "{}", path.display());
    }
}

#[test]
fn the_running_kernel_tells_where_files_have_their_path() {
    let types = match KernelTypes::open(Path::new(VMLINUX)) {
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
        if let Ok(types) = KernelTypes::parse(&bytes) {
            let _ = types.offset("outer", "d");
        }
    }
}

/// The running kernel's own file, once for all cases; none where it is not shown.
fn real() -> &'static [u8] {
    static REAL: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    REAL.get_or_init(|| std::fs::read(VMLINUX).unwrap_or_default())
}

proptest! {
    // Each case parses some megabytes.
    #![proptest_config(ProptestConfig::with_cases(5))]

    #[test]
    fn a_real_file_cut_anywhere_is_an_answer(at in any::<proptest::sample::Index>()) {
        let real = real();
        if !real.is_empty() {
            let cut = &real[..at.index(real.len())];
            prop_assert!(KernelTypes::parse(cut).is_err());
        }
    }

    #[test]
    fn a_real_file_with_wrong_bytes_is_an_answer(
        wrong in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..40),
    ) {
        let mut bytes = real().to_vec();
        if bytes.is_empty() {
            return Ok(());
        }
        for (at, value) in wrong {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(types) = KernelTypes::parse(&bytes) {
            for (structure, member) in [("task_struct", "files"), ("file", "f_path"), ("inode", "absent")] {
                let _ = types.offset(structure, member);
            }
        }
    }
}
