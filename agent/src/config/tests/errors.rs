//! Every mistake is found, all at once, and explained.

use agent_core::volume::Method;

use super::*;
use proptest::prelude::*;

#[test]
fn every_mistake_is_reported_at_once_in_the_order_of_the_file() {
    let text = r#"
[agent]
listne = "127.0.0.1:1"
listen = "localhost:9747"
[defaults]
interval = 10
failures = 0
[[volume]]
name = "a"
mountpoint = "mnt/a"
[[volume]]
name = "a"
mountpoint = "/mnt/b"
[volume.repair]
timeout = "60"
"#;
    let found = errors(text);
    let starts: Vec<&str> = found.lines().map(|line| line.split(": ").nth(2).unwrap()).collect();
    let expected = [
        "agent.listne",
        "agent.listen",
        "defaults.interval",
        "defaults.failures",
        "volume[0].mountpoint",
        "volume[1].name",
        "volume[1].repair.timeout",
    ];
    assert_eq!(starts, expected, "{found}");
    assert!(found.lines().next().unwrap().ends_with("(line 3)"), "{found}");
    assert!(found.lines().last().unwrap().ends_with("(line 15)"), "{found}");
}

#[test]
fn an_error_names_key_finding_and_what_is_accepted() {
    assert_eq!(
        error("[defaults]\nmode = \"acct\""),
        "defaults.mode: found \"acct\"; expected one of \"off\", \"observe\", \"dry-run\", \"act\"; \
         write \"act\" (line 2)"
    );
    assert_eq!(
        error(&volume("[volume.repair]\ntimeout = 60")),
        "volume[0].repair.timeout: found 60, which has no unit; expected a duration such as \"500ms\", \"10s\" \
         or \"2m\", from \"100ms\" to \"1h\"; write \"60s\" for seconds, \"60ms\" for milliseconds (line 5)"
    );
    assert_eq!(
        error(&volume("sentinal = { path = \"x\" }")),
        "volume[0].sentinal: unknown key, did you mean \"sentinel\"?; accepted here: deadline, failures, fstype, \
         identity, interval, mode, mountpoint, name, options, probe, repair, sentinel, source, write_probe (line 4)"
    );
}

/// A wrong line within a volume, and a part of what is said about it.
const WRONG_VOLUMES: [(&str, &str); 44] = [
    ("probe = { uid = 1000 }", "volume[0].probe.gid: missing; probing as a user needs uid and gid"),
    ("probe = { gid = 1000 }", "volume[0].probe.uid: missing"),
    ("probe = { uid = -1, gid = 0 }", "found -1; expected a whole number from 0 to 4294967294"),
    ("probe = { uid = 4294967295, gid = 0 }", "volume[0].probe.uid: found 4294967295"),
    ("probe = { uid = 1, gid = 1, groups = \"a\" }", "volume[0].probe.groups: found \"a\""),
    ("probe = 1000", "expected a table: { uid = 1000, gid = 1000, groups = [27] }"),
    ("interval = \"99ms\"", "volume[0].interval: found \"99ms\", which is too short"),
    ("interval = \"25h\"", "which is too long"),
    ("interval = \"10 s\"", "which is not a whole number followed by ms, s, m or h"),
    ("interval = \"1.5s\"", "which is not a whole number"),
    ("interval = \"-1s\"", "found \"-1s\"; expected a duration"),
    ("interval = \"10\"", "which has no unit"),
    ("interval = \"99999999999999999999h\"", "which is too long"),
    ("interval = true", "found true; expected a duration"),
    ("deadline = \"0s\"", "volume[0].deadline: found \"0s\", which is too short"),
    (
        "deadline = \"61s\"",
        "which is too long; expected a duration such as \"500ms\", \"10s\" or \"2m\", from \"1ms\" to \"1m\"",
    ),
    ("failures = 101", "found 101; expected a whole number from 1 to 100"),
    ("failures = \"3\"", "write 3 without quotes"),
    ("failures = -1", "found -1; expected a whole number"),
    ("write_probe = \"true\"", "write true without quotes"),
    ("write_probe = 1", "found 1; expected true or false"),
    ("fstype = \"nfs*\"", "which names several types"),
    ("source = \"\"", "volume[0].source: found \"\", which is empty"),
    ("source = \"--bind\"", "which would be taken for a flag"),
    ("source = '\\\\server\\share'", "shares of Windows as \"//server/share\""),
    (
        "options = \"ro\"",
        "found \"ro\"; expected a list, each entry one mount option, such as \"ro\" or \"vers=4.2\"; write [\"ro\"]",
    ),
    ("options = [\"ro,noatime\"]", "volume[0].options[0]: found \"ro,noatime\", which has a comma"),
    ("options = [\"ro\", 1]", "volume[0].options[1]: found 1; expected one mount option"),
    ("options = [\"remount\"]", "which would change the mounted file system for everybody"),
    ("sentinel = \".mountie\"", "found \".mountie\"; expected a table: { path"),
    (
        "sentinel = { path = \"/etc/passwd\" }",
        "volume[0].sentinel.path: found \"/etc/passwd\", which is absolute",
    ),
    ("sentinel = { path = \"a/../../b\" }", "which contains \"..\""),
    ("sentinel = { path = \"dir/\" }", "which names a directory"),
    ("sentinel = { path = \"./\" }", "which names a directory"),
    ("sentinel = { content = \"x\" }", "volume[0].sentinel.path: missing; a sentinel needs"),
    ("identity = { uuid = \"xyz\" }", "volume[0].identity.uuid: found \"xyz\"; expected a UUID"),
    ("identity = { fsid = \"12\" }", "expected 16 hexadecimal digits"),
    ("identity = 3", "found 3; expected a section [volume.identity]"),
    ("options = [\"ro\"]\nwrite_probe = true", "but the options say \"ro\""),
    ("[volume.repair]\nmax_attempts = 1001", "found 1001; expected a whole number from 1 to 1000"),
    (
        "[volume.repair]\nmethod = \"mout\"",
        "expected one of \"mount\", \"fstab\", \"systemd\", \"command\"; write \"mount\"",
    ),
    ("[volume.repair]\nmethod = \"command\"", "volume[0].repair.command: missing"),
    ("[volume.repair]\ncommand = [\"/x\", \"{target}\"]", "which only method = \"command\" uses"),
    ("[volume.repair]\ncomand = []", "volume[0].repair.comand: unknown key, did you mean \"command\"?"),
];

#[test]
fn wrong_lines_of_a_volume_are_explained() {
    for (line, expected) in WRONG_VOLUMES {
        let found = error(&volume(line));
        assert!(found.contains(expected), "{line}\n{found}");
    }
}

#[test]
fn wrong_lines_elsewhere_are_explained() {
    let wrong = [
        ("[agent]\nlisten = \":9747\"", "write \"0.0.0.0:9747\" for every IPv4 address"),
        ("[agent]\nlisten = \"localhost:80\"", "write \"127.0.0.1:80\""),
        ("[agent]\nlisten = 9747", "agent.listen: found 9747; expected an IP address and a port"),
        ("[agent]\nsocket = \"mountie.sock\"", "agent.socket: found \"mountie.sock\", which is relative"),
        ("[agent]\nstate_dir = \"/\"", "which is the root directory"),
        ("[agent]\nmount_namespace = \"host\"", "expected \"self\" or an absolute path"),
        ("[agent]\nlog_format = \"JSON\"", "write \"json\""),
        ("agent = 1", "agent: found 1; expected a section [agent]"),
        ("[kernel]\nfamily = \"fentry\"", "expected one of \"auto\", \"fexit\", \"sys_exit\", \"off\""),
        ("[discovery]\nenabled = \"no\"", "expected true or false"),
        (
            "[discovery]\ninclude = [\"nfs\"]",
            "discovery.include[0]: found \"nfs\"; expected a table: { fstype",
        ),
        (
            "[discovery]\ninclude = { fstype = \"x\" }",
            "discovery.include: found a table; expected a list of tables",
        ),
        ("[discovery]\nexclude = [{}]", "discovery.exclude[0]: missing; a selector without a key"),
        ("[discovery]\nexclude = [{ type = \"x\" }, { fstype = \"\" }]\n", "discovery.exclude[1].fstype"),
        ("[discovery]\ninclude = [{ mountpoint = \"srv\" }]", "which matches no mount point"),
        ("[volume]\nname = \"x\"", "volume: found a table; expected a list of tables: [[volume]]"),
        ("[volumes]", "volumes: unknown key, did you mean \"volume\"?"),
        ("[[volume]]\nmountpoint = \"/x\"", "volume[0].name: missing; every volume needs a name"),
        ("[[volume]]\nname = \"x\"", "volume[0].mountpoint: missing; every volume needs a mountpoint"),
    ];
    for (text, expected) in wrong {
        let found = errors(text);
        assert!(found.contains(expected), "{text}\n{found}");
    }
}

#[test]
fn names_are_plain_because_they_are_labels_arguments_and_addresses() {
    for name in ["a", "data-1", "pvc/a:b@c_d.e", &"x".repeat(128)] {
        accepted(&format!("[[volume]]\nname = \"{name}\"\nmountpoint = \"/m\""));
    }
    for name in ["", "a b", "-a", "é", "a\\n", "a\\\"b", &"x".repeat(129)] {
        let found = error(&format!("[[volume]]\nname = \"{name}\"\nmountpoint = \"/m\""));
        assert!(found.starts_with("volume[0].name: found "), "{found}");
    }
}

#[test]
fn mount_points_are_normalised_and_must_differ() {
    let config = accepted("[[volume]]\nname = \"a\"\nmountpoint = \"//mnt/./a///\"");
    assert_eq!(config.policy.volumes[0].mountpoint.as_bytes(), b"/mnt/a");
    let config = accepted("[[volume]]\nname = \"a\"\nmountpoint = '/mnt/caf\\xe9\\x5c'");
    assert_eq!(config.policy.volumes[0].mountpoint.as_bytes(), b"/mnt/caf\xe9\\");
    let found = error(
        "[[volume]]\nname = \"a\"\nmountpoint = \"/mnt/a\"\n[[volume]]\nname = \"b\"\nmountpoint = \"/mnt/a/\"",
    );
    assert_eq!(
        found,
        "volume[1].mountpoint: found \"/mnt/a\", which volume[0].mountpoint has already; each volume needs its own (line 6)"
    );
    for path in ["/mnt/../etc", "", "mnt", "/a\\\\q", "/a\\\\x00"] {
        let found = error(&format!("[[volume]]\nname = \"a\"\nmountpoint = \"{path}\""));
        assert!(found.starts_with("volume[0].mountpoint: found "), "{found}");
    }
}

#[test]
fn acting_needs_to_know_what_to_mount() {
    let found = errors(&volume("mode = \"act\""));
    assert!(
        found.contains("volume[0].source: missing; mode \"act\" with method \"mount\" must know"),
        "{found}"
    );
    assert!(found.contains("volume[0].fstype: missing"), "{found}");
    // Also when the mode comes from the defaults; and a broken source is not reported as a missing one as well.
    let text = format!("[defaults]\nmode = \"act\"\n{}", volume("source = \"-x\"\nfstype = \"nfs\""));
    assert!(error(&text).contains("would be taken for a flag"));
    accepted(&volume("mode = \"act\"\nsource = \"s:/x\"\nfstype = \"nfs4\""));
    accepted(&volume("mode = \"observe\""));
    accepted(&volume(
        "mode = \"act\"\n[volume.repair]\nmethod = \"command\"\ncommand = [\"fix\", \"{target}\"]",
    ));
}

#[test]
fn the_root_directory_is_never_repaired() {
    let root = |mode: &str| {
        format!(
            "[[volume]]\nname = \"r\"\nmountpoint = \"/\"\nmode = \"{mode}\"\nsource = \"/dev/x\"\nfstype = \"ext4\""
        )
    };
    accepted(&root("observe"));
    assert!(error(&root("act")).contains("every process stands on it"));
}

#[test]
fn the_agent_does_not_repair_what_it_stands_on() {
    let at = |path: &str, mode: &str| {
        format!(
            "[[volume]]\nname = \"v\"\nmountpoint = \"{path}\"\nmode = \"{mode}\"\nsource = \"s\"\nfstype = \"ext4\""
        )
    };
    accepted(&at("/var", "observe"));
    accepted(&at("/var/lib/mountie2", "act"));
    assert!(error(&at("/var", "act")).contains("holds agent.state_dir (/var/lib/mountie)"));
    assert!(error(&at("/run", "act")).contains("holds agent.socket"));
    assert!(error(&at("/run/mountie/stage/x", "observe")).contains("where the agent makes its own mounts"));
}

#[test]
fn a_command_says_in_one_way_where_it_mounts() {
    let with = |argv: &str| volume(&format!("[volume.repair]\nmethod = \"command\"\ncommand = {argv}"));
    for argv in [r#"["/x", "{target}"]"#, r#"["x", "--at={mountpoint}", "{mountpoint}", "{}", "{\"a\":1}"]"#]
    {
        accepted(&with(argv));
    }
    let wrong = [
        ("[]", "an empty list"),
        (r#"["/x"]"#, "found no placeholder"),
        (r#"["/x", "{target}", "{mountpoint}"]"#, "found both {target} and {mountpoint}"),
        (
            r#"["/x", "{target}", "{mount_point}"]"#,
            "found {mount_point}, which is no placeholder; there are {target} and {mountpoint}; did you mean {mountpoint}?",
        ),
        (r#"["./x", "{target}"]"#, "which is no program"),
        (r#"["{target}"]"#, "which is no program"),
        (r#"["/x", "{target}", "a\u0000b"]"#, "which contains a NUL byte"),
        (r#""/x {target}""#, "expected a list"),
    ];
    for (argv, expected) in wrong {
        let found = error(&with(argv));
        assert!(found.contains(expected), "{argv}\n{found}");
    }
}

#[test]
fn a_list_with_a_bad_entry_is_not_judged_as_a_whole() {
    let found =
        error(&volume("[volume.repair]\nmethod = \"command\"\ncommand = [\"/x\", \"--token={target}\"]"));
    assert!(found.starts_with("volume[0].repair.command[1]: holds a secret"), "{found}");
}

#[test]
fn what_this_version_cannot_do_is_refused_not_ignored() {
    let wrong = [
        (
            "method = \"csi\"",
            "volume[0].repair.method: method = \"csi\" is not supported by this version; use",
        ),
        ("delete_pods = true", "delete_pods = true is not supported by this version"),
    ];
    for (line, expected) in wrong {
        let found = error(&volume(&format!("[volume.repair]\n{line}")));
        assert!(found.contains(expected), "{line}\n{found}");
    }
    accepted(&volume("[volume.repair]\nswap_consumers = true\ndelete_pods = false"));
    assert!(error(&volume("[volume.repair]\ndelete_pods = 1")).contains("expected true or false"));
}

#[test]
fn a_hook_is_one_program_or_one_address() {
    let wrong = [
        ("hook = true", "volume[0].repair.hook: found true"),
        ("hook = {}", "a hook needs exec"),
        ("hook = { exec = [] }", "an empty list"),
        ("hook = { exec = [\"bin/ask\"] }", "which is no program"),
        ("hook = { exec = \"/x\" }", "write [\"/x\"]"),
        ("hook = { exec = [\"/x\"], url = \"http://h/\" }", "both exec and url"),
        ("hook = { url = \"https://h/\" }", "write exec"),
        ("hook = { url = \"ftp://h/\" }", "expected an address"),
        ("hook = { url = \"http:///x\" }", "no valid host"),
        ("hook = { url = \"http://h:port/\" }", "no valid host"),
        ("hook = { url = \"http://u:Zx9@h/\" }", "holds a secret"),
        ("hook = { url = \"http://h/?token=Zx9\" }", "holds a secret"),
        ("hook = { url = \"unix:run/x\" }", "is relative"),
        (
            "hook = { exec = [\"/x\"], timeout = \"1h\" }",
            "volume[0].repair.hook.timeout: found \"1h\", which is too long",
        ),
        ("hook = { exec = [\"/x\"], time = \"1s\" }", "volume[0].repair.hook.time: unknown key"),
    ];
    for (line, expected) in wrong {
        let found = error(&volume(&format!("[volume.repair]\n{line}")));
        assert!(found.contains(expected) && !found.contains("Zx9"), "{line}\n{found}");
    }
    for (line, expected) in [
        ("{ exec = [\"ask\", \"-v\"] }", "ask"),
        ("{ url = \"http://127.0.0.1:8080\" }", "http://127.0.0.1:8080/"),
        ("{ url = \"http://[::1]/a?b\" }", "http://[::1]/a"),
        ("{ url = \"unix:/run//ask.sock\" }", "unix:/run/ask.sock"),
    ] {
        let config = accepted(&volume(&format!("[volume.repair]\nhook = {line}")));
        let hook = config.policy.volumes[0].repair.hook.clone().unwrap();
        assert_eq!(agent_core::remediation::asking::name_of(&hook), expected);
        assert_eq!(hook.timeout.as_secs(), 10);
    }
}

#[test]
fn a_hook_does_not_lie_on_a_volume() {
    let with = |hook: &str| {
        volume(&format!(
            "[volume.repair]\nhook = {hook}\n[[volume]]\nname = \"tools\"\nmountpoint = \"/opt\""
        ))
    };
    for hook in ["{ exec = [\"/opt/ask\"] }", "{ url = \"unix:/opt/run/ask.sock\" }"] {
        let found = error(&with(hook));
        assert!(found.starts_with("volume[0].repair.hook: found \"/opt/"), "{found}");
        assert!(found.contains("which lies on the volume at /opt;"), "{found}");
    }
    for hook in ["{ exec = [\"/optional/ask\"] }", "{ exec = [\"opt\"] }", "{ url = \"http://opt/opt\" }"] {
        accepted(&with(hook));
    }
    let root = "[[volume]]\nname = \"r\"\nmountpoint = \"/\"\nmode = \"observe\"\nsource = \"/dev/x\"\nfstype = \"ext4\"";
    accepted(&format!("{root}\n{}", volume("[volume.repair]\nhook = { exec = [\"/etc/ask\"] }")));
}

#[test]
fn fstab_and_units_take_what_is_theirs_and_nothing_else() {
    let method = |text: &str| {
        let config =
            accepted(&format!("[[volume]]\nname = \"v\"\nmountpoint = \"/mnt/a-b\"\nmode = \"act\"\n{text}"));
        config.policy.volumes[0].repair.clone()
    };
    let found =
        method("options = [\"ro\"]\n[volume.repair]\nmethod = \"fstab\"\nenvironment_file = \"/etc/m.env\"");
    assert_eq!((found.method, found.environment_file), (Method::Fstab, Some("/etc/m.env".into())));
    assert!(found.heal_below);
    let found = method("[volume.repair]\nmethod = \"systemd\"\nheal_below = false");
    assert_eq!(found.method, Method::Systemd("mnt-a\\x2db.mount".into()));
    assert!(!found.heal_below);
    let found = method("[volume.repair]\nmethod = \"systemd\"\nunit = \"rclone@v.service\"");
    assert_eq!(found.method, Method::Systemd("rclone@v.service".into()));
    let wrong = [
        (
            "method = \"mount\"\nunit = \"a.mount\"",
            "repair.unit: found a unit, which only method = \"systemd\" uses",
        ),
        ("method = \"systemd\"\nunit = \"rclone\"", "write \"rclone.service\" or \"rclone.mount\""),
        ("method = \"systemd\"\nunit = \"--now.service\"", "expected the full name of a unit"),
        ("method = \"systemd\"\nunit = \"a.timer\"", "expected the full name of a unit"),
        ("method = \"systemd\"\nenvironment_file = \"/e\"", "write EnvironmentFile= in the unit"),
        ("method = \"fstab\"\ncommand = [\"/x\", \"{target}\"]", "which only method = \"command\" uses"),
        (
            "method = \"fstab\"\nenvironment_file = \"e\"",
            "repair.environment_file: found \"e\", which is relative",
        ),
    ];
    for (lines, expected) in wrong {
        let found = error(&volume(&format!("[volume.repair]\n{lines}")));
        assert!(found.contains(expected), "{lines}\n{found}");
    }
    for name in ["fstab", "systemd"] {
        let text = format!("options = [\"ro\", \"vers=4.2\"]\n[volume.repair]\nmethod = \"{name}\"");
        let found = error(&volume(&text));
        assert!(
            found.contains("volume[0].options: found \"vers=4.2\", which this method does not use"),
            "{found}"
        );
    }
}

#[test]
fn secrets_are_refused_and_never_shown() {
    let wrong = [
        "options = [\"username=u\", \"password=Zx9\"]",
        "options = [\"username=u,password=Zx9,tail\"]",
        "options = \"pass=Zx9\"",
        "options = [\"user=u%Zx9\"]",
        "source = \"https://u:Zx9@dav.example/\"",
        "mountpoint2 = \"secret=Zx9\"",
        "fstype = \"password=Zx9\"",
        "interval = \"password=Zx9\"",
        "\"password=Zx9\" = 1",
        "options = [{ password = \"Zx9\" }]",
        "sentinel = { path = \"/password=Zx9\" }",
        "[volume.repair]\nmethod = \"command\"\ncommand = [\"/x\", \"{target}\", \"--password=Zx9\"]",
        "options = [\"password=Zx9\"",
        "options = [\"password=Zx9' ]",
        "source = https://u:Zx9@dav.example/",
        "password = Zx9",
    ];
    for line in wrong {
        let found = errors(&volume(line));
        assert!(!found.contains("Zx9"), "{line}\n{found}");
    }
    let found = error(&volume(wrong[0]));
    assert!(found.contains("volume[0].options[1]: holds a secret (password=…)"), "{found}");
    assert!(found.contains("use credentials=FILE"), "{found}");
    accepted(&volume("options = [\"credentials=/etc/x\", \"secretfile=/etc/y\"]"));
}

#[test]
fn a_file_that_is_no_toml_is_shown_with_line_column_and_text() {
    let found = errors("[agent]\nlisten = \"127.0.0.1:1\"\nsocket = /run/x\n");
    assert!(found.starts_with("error: config: config.toml: line 3, column 10: "), "{found}");
    assert!(found.contains("\n    socket = /run/x"), "{found}");
    let found = errors("[defaults]\nfailures = 1\nfailures = 2\n");
    assert!(found.contains("line 3, column 1: duplicate key"), "{found}");
}

proptest! {
    #[test]
    fn no_text_makes_the_loader_panic(text in "(?s).{0,200}") {
        let _ = Config::from_toml(&text).map_err(|errors| errors.to_string());
    }

    #[test]
    fn no_half_right_text_makes_the_loader_panic(
        lines in prop::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    "[agent]", "[defaults]", "[[volume]]", "[volume.repair]", "[discovery]", "[kernel]", "[volume]",
                    "name = \"a\"", "mountpoint = \"/a\"", "options = [\"ro\"]", "include = [{}]", "mode = \"act\"",
                ]).prop_map(str::to_owned),
                ("(name|mountpoint|source|options|mode|interval|failures|sentinel|command|hook|listen|enabled)",
                 "(\"[^\"\n]{0,20}\"|'[^'\n]{0,20}'|-?[0-9]{1,30}|true|\\[\\[\\]\\]|\\{ path = \"(.){0,5}\" \\}|1979-05-27|nan|0x[0-9a-f]{1,9})")
                    .prop_map(|(key, value)| format!("{key} = {value}")),
            ],
            0..12,
        )
    ) {
        let _ = Config::from_toml(&lines.join("\n")).map_err(|errors| errors.to_string());
    }
}
