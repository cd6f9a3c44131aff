//! What is printed parses back to the same configuration.

use super::*;
use agent_core::id::VolumeId;
use agent_core::path::BytePath;
use agent_core::volume::{
    Discovery, Identity, Method, Mode, ProbeUser, Reach, Repair, Selector, Sentinel, VolumeSpec, Watch,
};
use proptest::option::of;
use proptest::prelude::*;
use std::time::Duration;

fn millis(range: std::ops::RangeInclusive<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_millis)
}

fn watch() -> impl Strategy<Value = Watch> {
    let mode = prop::sample::select(vec![Mode::Off, Mode::Observe, Mode::DryRun, Mode::Act]);
    let id = || 0..=4_294_967_294_u32;
    let user = (id(), id(), prop::collection::vec(id(), 0..3));
    let user = user.prop_map(|(uid, gid, groups)| std::sync::Arc::new(ProbeUser { uid, gid, groups }));
    (mode, millis(100..=86_400_000), millis(1..=60_000), 1..=100u32, of(user)).prop_map(
        |(mode, interval, deadline, failures, probe_as)| Watch {
            mode,
            interval,
            deadline,
            failures,
            probe_as,
        },
    )
}

/// Any bytes but NUL and slash, and neither `.` nor `..`.
fn component() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(
        any::<u8>().prop_filter("no slash, no NUL", |byte| !matches!(byte, 0 | b'/')),
        1..12,
    )
    .prop_filter("not special", |name| name != b"." && name != b"..")
}

fn method() -> impl Strategy<Value = Method> {
    let command =
        ("/[a-z]{1,8}", prop::collection::vec("[ -~é\n\t]{0,12}", 0..3)).prop_map(|(program, rest)| {
            // Braces might form an unknown placeholder, "=" a secret.
            let rest = rest.into_iter().map(|word| word.replace(['{', '}', '='], "_"));
            Method::Command(std::iter::once(program).chain(rest).chain(["{target}".to_owned()]).collect())
        });
    let unit = "[a-z][a-z0-9-]{0,8}(@[a-z0-9]{1,8})?\\.(mount|service)".prop_map(Method::Systemd);
    prop_oneof![Just(Method::Mount), Just(Method::Fstab), unit, command]
}

fn spec() -> impl Strategy<Value = VolumeSpec> {
    let what = (
        of(component().prop_filter("no flag", |source| !source.starts_with(b"-"))),
        of("[a-z][a-z0-9.]{0,10}"),
        prop::collection::vec("[a-z]{2,8}(:[ -+.-<>-~]{0,8})?", 0..4),
    );
    let sentinel = of((component(), of("[ -~é\n\"'\\\\]{0,30}")));
    let identity = (of("[0-9a-f]{8}-[0-9a-f]{4}"), of("[0-9a-f]{16}"));
    let reach = prop::sample::select(vec![Reach::Nothing, Reach::Unowned, Reach::All]);
    let below = (of("/[a-zé\"' ]{0,8}x"), any::<bool>(), reach);
    let repair = (method(), millis(100..=3_600_000), 1..=1000u32, below);
    ("[A-Za-z0-9._:/@]{1,20}", component(), what, watch(), sentinel, (any::<bool>(), identity, repair))
        .prop_map(
            |(
                name,
                place,
                (source, fstype, options),
                watch,
                sentinel,
                (write_probe, (uuid, fsid), repair),
            )| {
                let mut spec = VolumeSpec {
                    id: VolumeId::new(name),
                    mountpoint: BytePath::from("/mnt").join(&place),
                    source,
                    fstype,
                    options: options.into_iter().map(|option| option.replace(['"', ','], "_")).collect(),
                    watch,
                    sentinel: sentinel.map(|(path, content)| Sentinel {
                        path: BytePath::new(path),
                        content: content.map(String::into_bytes),
                    }),
                    write_probe,
                    identity: Identity { uuid, fsid },
                    repair: Repair {
                        method: repair.0,
                        timeout: repair.1,
                        max_attempts: repair.2,
                        environment_file: repair.3.0.map(|path| BytePath::from(path.as_str())),
                        heal_below: repair.3.1,
                        consumers: repair.3.2,
                    },
                };
                // Rules between keys.
                if spec.repair.method == Method::Mount && (spec.source.is_none() || spec.fstype.is_none()) {
                    spec.watch.mode = Mode::Observe;
                }
                match spec.repair.method {
                    Method::Fstab => spec.options.retain(|option| matches!(option.as_str(), "ro" | "rw")),
                    Method::Systemd(_) => {
                        spec.options.retain(|option| matches!(option.as_str(), "ro" | "rw"));
                        spec.repair.environment_file = None;
                    }
                    Method::Mount | Method::Command(_) => {}
                }
                spec.write_probe &= !spec.wants_readonly();
                spec.options.retain(|option| option != "remount");
                spec
            },
        )
}

fn selector() -> impl Strategy<Value = Selector> {
    (of("[a-z.*]{1,8}"), of("/[a-z/*]{0,8}"), of("[ -~é]{1,8}"))
        .prop_filter("not empty", |(fstype, mountpoint, source)| {
            fstype.is_some() || mountpoint.is_some() || source.is_some()
        })
        .prop_map(|(fstype, mountpoint, source)| Selector { fstype, mountpoint, source })
}

fn config() -> impl Strategy<Value = Config> {
    let selectors = || prop::collection::vec(selector(), 0..3);
    let agent = (of(any::<(u32, u16)>()), any::<bool>(), any::<bool>(), "/[a-zé\"' ]{1,8}x");
    let family = prop::sample::select(vec![Family::Auto, Family::Fexit, Family::SysExit, Family::Off]);
    let discovery = (any::<bool>(), selectors(), selectors());
    (agent, family, watch(), discovery, prop::collection::vec(spec(), 0..4)).prop_map(
        |((listen, own, json, directory), family, defaults, (enabled, include, exclude), specs)| {
            let mut config = Config::default();
            config.agent.listen = listen.map(|(ip, port)| SocketAddr::new(IpAddr::V4(ip.into()), port));
            config.agent.socket = PathBuf::from(format!("{directory}/mountie.sock"));
            config.agent.state_dir = PathBuf::from(&directory);
            if own {
                config.agent.mount_namespace = MountNamespace::Own;
            }
            config.agent.log_format = if json { LogFormat::Json } else { LogFormat::Text };
            config.kernel.family = family;
            config.kernel.btf = PathBuf::from(format!("{directory}/btf"));
            config.policy.stage_root = BytePath::from(format!("{directory}/stage").as_str());
            config.policy.defaults = defaults;
            config.policy.discovery = Discovery { enabled, include, exclude };
            for spec in specs {
                let known = &config.policy.volumes;
                if !known.iter().any(|other| other.id == spec.id || other.mountpoint == spec.mountpoint) {
                    config.policy.volumes.push(spec);
                }
            }
            config
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_parses_back_to_the_same(config in config()) {
        let text = config.to_toml();
        let back = Config::from_toml(&text).map_err(|errors| TestCaseError::fail(format!("{errors}\n{text}")))?;
        prop_assert_eq!(back, config);
    }
}

#[test]
fn durations_are_printed_in_the_largest_unit_that_fits() {
    for (millis, text) in
        [(1, "1ms"), (1_500, "1500ms"), (10_000, "10s"), (90_000, "90s"), (120_000, "2m"), (3_600_000, "1h")]
    {
        assert_eq!(scalar::written(Duration::from_millis(millis)), text);
    }
}

#[test]
fn every_key_with_a_value_is_printed() {
    let text = accepted(&volume("")).to_toml();
    for key in
        ["listen", "state_dir", "family", "failures", "include", "options", "write_probe", "max_attempts"]
    {
        assert!(text.contains(&format!("\n{key} = ")), "{key}\n{text}");
    }
}
