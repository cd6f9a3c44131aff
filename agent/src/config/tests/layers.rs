//! Defaults, file, environment, flags: the later wins. And the file itself: it must exist when it is named,
//! and nobody but root may write it.

use super::*;
use agent_core::volume::Mode;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// A file in a directory of its own, with this text and mode.
struct Sample {
    directory: tempfile::TempDir,
}

impl Sample {
    fn new(text: &[u8], mode: u32) -> Self {
        let sample = Self { directory: tempfile::tempdir().unwrap() };
        std::fs::write(sample.path(), text).unwrap();
        std::fs::set_permissions(sample.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        sample
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("config.toml")
    }

    fn sources(&self, variables: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Sources {
        Sources {
            file: Some(self.path()),
            environment: Environment::from_pairs(variables.iter().copied()),
            flags: flags.iter().map(|(flag, value)| (*flag, (*value).to_owned())).collect(),
        }
    }
}

fn failure(sources: &Sources) -> String {
    Config::load(sources).expect_err("accepted").to_string()
}

#[test]
fn without_anything_the_defaults_hold() {
    let config = accepted("");
    assert_eq!(config, Config::default());
    assert_eq!(config.agent.listen.unwrap().to_string(), "127.0.0.1:9747");
    assert_eq!(config.policy.defaults.interval, Duration::from_secs(10));
    assert_eq!(config.policy.defaults.mode, Mode::Observe);
    assert_eq!(config.policy.stage_root.to_string(), "/run/mountie/stage");
}

#[test]
fn the_later_layer_wins() {
    let sample = Sample::new(b"[defaults]\nmode = \"off\"\ninterval = \"1s\"\nfailures = 3", 0o644);
    let variables = [
        ("MOUNTIE_DEFAULTS_MODE", "act"),
        ("MOUNTIE_DEFAULTS_INTERVAL", "2s"),
        ("MOUNTIE_DISCOVERY_ENABLED", "false"),
    ];
    let config = Config::load(&sample.sources(&variables, &[("--mode", "dry-run")])).unwrap();
    assert_eq!(config.policy.defaults.mode, Mode::DryRun);
    assert_eq!(config.policy.defaults.interval, Duration::from_secs(2));
    assert_eq!(config.policy.defaults.failures, 3);
    assert!(!config.policy.discovery.enabled);
}

#[test]
fn every_overriding_key_takes_effect() {
    let sample = Sample::new(b"", 0o600);
    let variables = [
        ("MOUNTIE_AGENT_LISTEN", "[::1]:1"),
        ("MOUNTIE_AGENT_SOCKET", "/s/mountie.sock"),
        ("MOUNTIE_AGENT_DOCKER_PLUGIN", "/plugins/mountie.sock"),
        ("MOUNTIE_AGENT_STATE_DIR", "/state"),
        ("MOUNTIE_AGENT_MOUNT_NAMESPACE", "self"),
        ("MOUNTIE_AGENT_LOG_FORMAT", "json"),
        ("MOUNTIE_KERNEL_FAMILY", "sys_exit"),
        ("MOUNTIE_KERNEL_BTF", "/boot/btf"),
        ("MOUNTIE_DEFAULTS_MODE", "off"),
        ("MOUNTIE_DEFAULTS_INTERVAL", "500ms"),
        ("MOUNTIE_DEFAULTS_DEADLINE", "400ms"),
        ("MOUNTIE_DEFAULTS_FAILURES", "7"),
        ("MOUNTIE_DISCOVERY_ENABLED", "false"),
    ];
    assert_eq!(variables.len(), environment::SETTINGS.len());
    let config = Config::load(&sample.sources(&variables, &[])).unwrap();
    let file = "[agent]\nlisten = \"[::1]:1\"\nsocket = \"/s/mountie.sock\"\n\
                docker_plugin = \"/plugins/mountie.sock\"\nstate_dir = \"/state\"\n\
                mount_namespace = \"self\"\nlog_format = \"json\"\n[kernel]\nfamily = \"sys_exit\"\nbtf = \"/boot/btf\"\n\
                [defaults]\nmode = \"off\"\ninterval = \"500ms\"\ndeadline = \"400ms\"\nfailures = 7\n\
                [discovery]\nenabled = false";
    assert_eq!(config, accepted(file));
    assert_eq!(config.agent.stage_root(), PathBuf::from("/s/stage"));
    assert_eq!(config.agent.lock_file(), PathBuf::from("/s/lock"));
    assert_eq!(config.policy.stage_root.to_string(), "/s/stage");
}

#[test]
fn an_error_names_the_variable_or_flag_it_came_from() {
    let sample = Sample::new(b"[defaults]\ninterval = \"1\"", 0o644);
    let variables = [("MOUNTIE_DEFAULTS_INTERVAL", "10"), ("MOUNTIE_DEFAULTS_FAILURES", "many")];
    let found = failure(&sample.sources(&variables, &[("--listen", "x")]));
    let starts = [
        "MOUNTIE_DEFAULTS_INTERVAL: found \"10\", which has no unit",
        "MOUNTIE_DEFAULTS_FAILURES: found \"many\"",
        "--listen: found \"x\"",
        "defaults.interval: found \"1\"",
    ];
    for start in starts {
        assert!(found.contains(&format!("error: config: {start}")), "{found}");
    }
    assert_eq!(found.lines().count(), 4, "{found}");
}

#[test]
fn a_misspelt_variable_is_an_error_and_foreign_ones_are_not() {
    let sample = Sample::new(b"", 0o644);
    let found = failure(&sample.sources(&[("MOUNTIE_AGENT_LISTN", "x")], &[]));
    assert!(
        found.contains("MOUNTIE_AGENT_LISTN: unknown variable, did you mean \"MOUNTIE_AGENT_LISTEN\"?"),
        "{found}"
    );
    let foreign = [
        ("PATH", "/bin"),
        ("MOUNTIE_LOG", "debug"),
        ("MOUNTIE_TEST_KEEP", "1"),
        // What Kubernetes sets for services called mountie and mountie-web.
        ("MOUNTIE_SERVICE_HOST", "10.0.0.1"),
        ("MOUNTIE_SERVICE_PORT", "9747"),
        ("MOUNTIE_SERVICE_PORT_METRICS", "9747"),
        ("MOUNTIE_PORT", "tcp://10.0.0.1:9747"),
        ("MOUNTIE_PORT_9747_TCP", "tcp://10.0.0.1:9747"),
        ("MOUNTIE_WEB_PORT_9747_TCP_ADDR", "10.0.0.1"),
    ];
    Config::load(&sample.sources(&foreign, &[])).unwrap();
}

#[test]
fn a_variable_that_is_no_text_is_an_error() {
    use std::os::unix::ffi::OsStrExt;
    let mut sources = Sample::new(b"", 0o644).sources(&[], &[]);
    let value = std::ffi::OsStr::from_bytes(b"\xff");
    sources.environment = Environment::from_pairs([("MOUNTIE_AGENT_LISTEN", value)]);
    assert!(failure(&sources).contains("MOUNTIE_AGENT_LISTEN: is not UTF-8"));
}

#[test]
fn a_named_file_must_exist() {
    let sample = Sample::new(b"", 0o644);
    let mut sources = sample.sources(&[], &[]);
    sources.file = Some(sample.path().with_file_name("absent.toml"));
    let found = failure(&sources);
    assert!(found.contains("absent.toml: cannot be read: "), "{found}");
}

#[test]
fn a_file_that_others_may_write_is_refused_with_the_remedy() {
    for mode in [0o664, 0o646, 0o622] {
        let sample = Sample::new(b"[defaults]\nfailures = 0", mode);
        let found = failure(&sample.sources(&[], &[]));
        assert!(found.contains("run: chmod go-w "), "{found}");
        assert!(found.contains("defaults.failures"), "mistakes in it are shown as well: {found}");
    }
    Config::load(&Sample::new(b"", 0o400).sources(&[], &[])).unwrap();
}

#[test]
fn a_file_of_somebody_else_is_refused_with_the_remedy() {
    let sample = Sample::new(b"", 0o644);
    if std::os::unix::fs::chown(sample.path(), Some(12_345), None).is_err() {
        assert!(!nix::unistd::geteuid().is_root(), "only root can give a file away");
        return;
    }
    let found = failure(&sample.sources(&[], &[]));
    assert!(found.contains("belongs to uid 12345") && found.contains("run: chown root "), "{found}");
}

#[test]
fn what_is_no_text_file_is_refused_without_waiting() {
    let sample = Sample::new(b"\xff\xfe", 0o644);
    assert!(failure(&sample.sources(&[], &[])).contains("is not UTF-8"));
    let mut sources = sample.sources(&[], &[]);
    sources.file = Some(sample.directory.path().to_owned());
    assert!(failure(&sources).contains("is not a regular file"));
    let fifo = sample.directory.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    sources.file = Some(fifo);
    assert!(failure(&sources).contains("is not a regular file"));
}

#[test]
fn a_linked_file_is_read_as_kubernetes_shows_it() {
    let sample = Sample::new(b"[defaults]\nfailures = 9", 0o644);
    let link = sample.directory.path().join("link.toml");
    std::os::unix::fs::symlink("config.toml", &link).unwrap();
    let mut sources = sample.sources(&[], &[]);
    sources.file = Some(link);
    assert_eq!(Config::load(&sources).unwrap().policy.defaults.failures, 9);
}

#[test]
fn what_is_in_effect_is_printed_or_everything_wrong() {
    let good = Sample::new(b"[defaults]\nfailures = 9", 0o644);
    let text = Config::load(&good.sources(&[], &[("--mode", "act")])).unwrap().to_toml();
    assert!(text.contains("failures = 9\n") && text.contains("mode = \"act\"\n"), "{text}");
    let bad = Sample::new(b"[defaults]\nfailures = 0\ninterval = 1", 0o644);
    let text = Config::load(&bad.sources(&[], &[])).unwrap_err().to_string();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.lines().all(|line| line.starts_with("error: config: ")), "{text}");
}

#[test]
fn a_volume_inherits_each_key_that_it_does_not_set() {
    let config = accepted(
        "[defaults]\ninterval = \"1m\"\ndeadline = \"5s\"\nfailures = 4\n\
         [[volume]]\nname = \"v\"\nmountpoint = \"/m\"\ndeadline = \"6s\"\nmode = \"off\"",
    );
    let watch = &config.policy.volumes[0].watch;
    assert_eq!(
        (watch.mode, watch.interval, watch.deadline, watch.failures),
        (Mode::Off, Duration::from_secs(60), Duration::from_secs(6), 4)
    );
}
