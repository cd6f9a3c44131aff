//! The effective configuration as a file: every key that has a value, and what it parses to is the same.

use std::fmt::Write;
use std::path::Path;

use agent_core::path::escape;
use agent_core::policy::Policy;
use agent_core::volume::{
    Hook, HookAddress, HookWay, Method, ProbeUser, Reach, Selector, Sentinel, VolumeSpec, Watch,
};

use super::Config;
use super::scalar::{word, written};

/// The text of the file. Writing to a string cannot fail, hence the ignored results.
pub(super) fn to_toml(config: &Config) -> String {
    let mut out = String::new();
    let agent = &config.agent;
    let _ = writeln!(out, "[agent]");
    let listen = agent.listen.map(|address| address.to_string()).unwrap_or_default();
    line(&mut out, "listen", &quoted(&listen));
    line(&mut out, "socket", &quoted(&agent.socket.to_string_lossy()));
    let plugin = agent.docker_plugin.as_deref().map(Path::to_string_lossy).unwrap_or_default();
    line(&mut out, "docker_plugin", &quoted(&plugin));
    line(&mut out, "state_dir", &quoted(&agent.state_dir.to_string_lossy()));
    let namespace = agent.mount_namespace.as_path().to_string_lossy();
    line(&mut out, "mount_namespace", &quoted(&namespace));
    line(&mut out, "log_format", &quoted(word(agent.log_format)));
    let _ = writeln!(out, "\n[kernel]");
    line(&mut out, "family", &quoted(word(config.kernel.family)));
    line(&mut out, "btf", &quoted(&config.kernel.btf.to_string_lossy()));
    policy(&mut out, &config.policy);
    out
}

fn policy(out: &mut String, policy: &Policy) {
    let _ = writeln!(out, "\n[defaults]");
    watch(out, &policy.defaults);
    let _ = writeln!(out, "\n[discovery]");
    line(out, "enabled", &policy.discovery.enabled.to_string());
    line(out, "include", &selectors(&policy.discovery.include));
    line(out, "exclude", &selectors(&policy.discovery.exclude));
    for spec in &policy.volumes {
        volume(out, spec);
    }
}

fn volume(out: &mut String, spec: &VolumeSpec) {
    let _ = writeln!(out, "\n[[volume]]");
    line(out, "name", &quoted(spec.id.as_str()));
    line(out, "mountpoint", &quoted(&spec.mountpoint.to_string()));
    if let Some(source) = &spec.source {
        line(out, "source", &quoted(&escape(source)));
    }
    if let Some(fstype) = &spec.fstype {
        line(out, "fstype", &quoted(fstype));
    }
    line(out, "options", &list(&spec.options));
    watch(out, &spec.watch);
    if let Some(sentinel) = &spec.sentinel {
        out.push_str(&sentinel_line(sentinel));
    }
    line(out, "write_probe", &spec.write_probe.to_string());
    let identity = [("uuid", &spec.identity.uuid), ("fsid", &spec.identity.fsid)];
    let identity: Vec<String> = identity
        .into_iter()
        .filter_map(|(key, value)| value.as_ref().map(|value| format!("{key} = {}", quoted(value))))
        .collect();
    if !identity.is_empty() {
        line(out, "identity", &format!("{{ {} }}", identity.join(", ")));
    }
    let _ = writeln!(out, "[volume.repair]");
    match &spec.repair.method {
        Method::Mount => line(out, "method", "\"mount\""),
        Method::Fstab => line(out, "method", "\"fstab\""),
        Method::Systemd(unit) => {
            line(out, "method", "\"systemd\"");
            line(out, "unit", &quoted(unit));
        }
        Method::Command(argv) => {
            line(out, "method", "\"command\"");
            line(out, "command", &list(argv));
        }
    }
    line(out, "timeout", &quoted(&written(spec.repair.timeout)));
    line(out, "max_attempts", &spec.repair.max_attempts.to_string());
    if let Some(path) = &spec.repair.environment_file {
        // It came from a TOML string, or was checked for one, so it is UTF-8.
        line(out, "environment_file", &quoted(&String::from_utf8_lossy(path.as_bytes())));
    }
    line(out, "heal_below", &spec.repair.heal_below.to_string());
    match spec.repair.consumers {
        Reach::Nothing => line(out, "swap_consumers", "false"),
        Reach::All => line(out, "swap_consumers", "true"),
        // What holds without the key is less than `true`, and has no word of its own.
        Reach::Unowned => {}
    }
    if let Some(hook) = &spec.repair.hook {
        line(out, "hook", &hook_table(hook));
    }
    // Fixed until this version knows more.
    line(out, "delete_pods", "false");
}

fn hook_table(hook: &Hook) -> String {
    let how = match &hook.how {
        HookWay::Exec(argv) => format!("exec = {}", list(argv)),
        HookWay::Post(HookAddress::Http { authority, path }) => {
            format!("url = {}", quoted(&format!("http://{authority}{path}")))
        }
        HookWay::Post(HookAddress::Unix(path)) => format!("url = {}", quoted(&format!("unix:{path}"))),
    };
    format!("{{ {how}, timeout = {} }}", quoted(&written(hook.timeout)))
}

/// `sentinel = { … }`
pub(super) fn sentinel_line(sentinel: &Sentinel) -> String {
    let content = sentinel.content.as_ref().map(|content| {
        // It came from a TOML string, or was checked for one, so it is UTF-8.
        format!(", content = {}", quoted(&String::from_utf8_lossy(content)))
    });
    let path = quoted(&sentinel.path.to_string());
    let mut out = String::new();
    line(&mut out, "sentinel", &format!("{{ path = {path}{} }}", content.unwrap_or_default()));
    out
}

fn watch(out: &mut String, watch: &Watch) {
    line(out, "mode", &quoted(word(watch.mode)));
    line(out, "interval", &quoted(&written(watch.interval)));
    line(out, "deadline", &quoted(&written(watch.deadline)));
    line(out, "failures", &watch.failures.to_string());
    line(out, "probe", &watch.probe_as.as_deref().map_or_else(|| "{}".to_owned(), probe_user));
}

fn probe_user(user: &ProbeUser) -> String {
    let groups: Vec<String> = user.groups.iter().map(u32::to_string).collect();
    format!("{{ uid = {}, gid = {}, groups = [{}] }}", user.uid, user.gid, groups.join(", "))
}

fn selectors(selectors: &[Selector]) -> String {
    let tables: Vec<String> = selectors.iter().map(selector).collect();
    format!("[{}]", tables.join(", "))
}

fn selector(selector: &Selector) -> String {
    let keys =
        [("fstype", &selector.fstype), ("mountpoint", &selector.mountpoint), ("source", &selector.source)];
    let keys: Vec<String> = keys
        .into_iter()
        .filter_map(|(key, glob)| glob.as_ref().map(|glob| format!("{key} = {}", quoted(glob))))
        .collect();
    format!("{{ {} }}", keys.join(", "))
}

fn list(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("[{}]", words.join(", "))
}

fn line(out: &mut String, key: &str, value: &str) {
    let _ = writeln!(out, "{key} = {value}");
}

/// A TOML string, with whatever quotes it needs.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
