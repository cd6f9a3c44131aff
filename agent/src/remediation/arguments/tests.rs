//! Argument lists, word by word.

use super::*;

fn shown(invocation: &Invocation) -> Vec<String> {
    invocation.argv.iter().map(|argument| agent_core::path::escape(argument)).collect()
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn options_keep_their_order_and_are_left_out_when_there_are_none() {
    let place = BytePath::from("/stage/7");
    let full = mount("nfs4", &words(&["vers=4.2", "hard"]), b"filer:/x", &place).unwrap();
    assert_eq!(shown(&full), ["mount", "-t", "nfs4", "-o", "vers=4.2,hard", "filer:/x", "/stage/7"]);
    let bare = mount("tmpfs", &[], b"x", &place).unwrap();
    assert_eq!(shown(&bare), ["mount", "-t", "tmpfs", "x", "/stage/7"]);
}

#[test]
fn a_source_that_looks_like_an_option_is_refused() {
    let place = BytePath::from("/stage/7");
    assert_eq!(mount("tmpfs", &[], b"--bind", &place), Err(ArgumentError::DashedSource));
    assert_eq!(mount("tmpfs", &[], b"a\0b", &place), Err(ArgumentError::Nul));
}

#[test]
fn a_cifs_password_never_reaches_the_arguments() {
    let options = words(&["username=u", "password=Z,x9", "seal"]);
    let invocation = mount("cifs", &options, b"//s/share", &BytePath::from("/p")).unwrap();
    assert_eq!(shown(&invocation), ["mount", "-t", "cifs", "-o", "username=u,seal", "//s/share", "/p"]);
    assert_eq!(invocation.environment, [("PASSWD".into(), "Z,x9".into())]);
}

#[test]
fn network_file_systems_get_a_superblock_of_their_own() {
    assert_eq!(with_own_superblock("nfs4", &words(&["hard", "sharecache"])), ["hard", "nosharecache"]);
    assert_eq!(with_own_superblock("cifs", &words(&["nosharesock"])), ["nosharesock"]);
    assert_eq!(with_own_superblock("ext4", &words(&["noatime"])), ["noatime"]);
}

#[test]
fn braces_are_filled_once_whole_or_within_an_argument() {
    let (target, mountpoint) = (BytePath::new(*b"/s/{source}\xe9"), BytePath::from("/mnt/a"));
    let places = Places { target: Some(&target), mountpoint: &mountpoint, source: b"src" };
    let argv = words(&["fix", "{target}", "--at={mountpoint}/x", "{source}{source}", "{other} {", "a}"]);
    let filled = command(&argv, places).unwrap();
    assert_eq!(shown(&filled), ["fix", "/s/{source}\\xe9", "--at=/mnt/a/x", "srcsrc", "{other} {", "a}"]);
}

#[test]
fn a_target_is_not_filled_in_where_there_is_none() {
    let mountpoint = BytePath::from("/mnt/a");
    let places = Places { target: None, mountpoint: &mountpoint, source: b"" };
    let filled = command(&words(&["fix", "{target}", "{mountpoint}"]), places).unwrap();
    assert_eq!(shown(&filled), ["fix", "{target}", "/mnt/a"]);
    assert_eq!(command(&[], places), Err(ArgumentError::Empty));
}
