//! One `[[volume]]`: what belongs together within it.

use agent_core::id::VolumeId;
use agent_core::path::BytePath;
use agent_core::remediation::unit;
use agent_core::volume::{Identity, Method, Mode, Reach, Repair, Sentinel, VolumeSpec, Watch};

use super::error::{Place, Problem};
use super::raw::{RawRepair, RawSentinel, RawVolume};
use super::reader::{Document, Given};
use super::scalar::{MethodName, word};
use super::suggest::closest;
use super::text::{Argument, MountOption};
use super::{show, validate};

/// The volume, or `None` when it has no usable name or mount point. Everything wrong is noted either way.
pub(super) fn spec(raw: RawVolume, defaults: &Watch, document: &Document<'_>) -> Option<VolumeSpec> {
    let needs = |place: Option<&Place>, why: &str| {
        if let Some(place) = place {
            document.report(place.clone(), Problem::Missing { why: why.to_owned() });
        }
    };
    needs(
        raw.name.missing(),
        "every volume needs a name, which is its label in metrics and on the command line",
    );
    needs(raw.mountpoint.missing(), "every volume needs a mountpoint, such as \"/mnt/models\"");
    let mode_place = match &raw.watch.mode {
        Given::Is(_, place) => Some(place.clone()),
        Given::Absent(_) | Given::Broken => None,
    };
    let watch = validate::watch(raw.watch, defaults, document);
    let method = method(&raw.repair, document);
    if matches!(watch.mode, Mode::Act | Mode::DryRun) && method == Some(MethodName::Mount) {
        let why = |key: &str| {
            let mode = word(watch.mode);
            format!(
                "mode \"{mode}\" with method \"mount\" must know what to mount; write {key}, or use mode \"observe\""
            )
        };
        needs(raw.source.missing(), &why("source"));
        needs(raw.fstype.missing(), &why("fstype"));
    }
    check_unused(&raw.repair, &raw.options, method, document);
    check_root(&raw.mountpoint, &watch, mode_place, document);
    let options: Vec<String> =
        raw.options.value().unwrap_or_default().into_iter().map(|option| option.0).collect();
    let write_place = match &raw.write_probe {
        Given::Is(true, place) => Some(place.clone()),
        Given::Is(..) | Given::Absent(_) | Given::Broken => None,
    };
    let sentinel = raw.sentinel.value().and_then(|raw| sentinel(raw, document));
    let (name, mountpoint) = (raw.name.value(), raw.mountpoint.value());
    let repair = repair(raw.repair, method, mountpoint.as_ref().map(|path| &path.0));
    let (name, mountpoint) = (name?, mountpoint?);
    let spec = VolumeSpec {
        id: VolumeId::new(name.0),
        mountpoint: mountpoint.0,
        source: raw.source.value().map(|source| source.0),
        fstype: raw.fstype.value().map(|fstype| fstype.0),
        options,
        watch,
        sentinel,
        write_probe: write_place.is_some(),
        identity: Identity {
            uuid: raw.uuid.value().map(|uuid| uuid.0),
            fsid: raw.fsid.value().map(|fsid| fsid.0),
        },
        repair,
    };
    if let Some(place) = write_place.filter(|_| spec.wants_readonly()) {
        let why = "but the options say \"ro\", so every write would fail; remove one of them".to_owned();
        document.report(place, Problem::Conflict { found: "true".to_owned(), why });
    }
    Some(spec)
}

/// Nothing can be swapped in at the root directory: every process stands on it.
fn check_root(
    mountpoint: &Given<super::text::MountPoint>,
    watch: &Watch,
    mode_place: Option<Place>,
    document: &Document<'_>,
) {
    let Given::Is(path, place) = mountpoint else { return };
    if path.0.as_bytes() == b"/" && matches!(watch.mode, Mode::Act | Mode::DryRun) {
        let why = format!(
            "which mode \"{}\" cannot repair: every process stands on it; use mode = \"observe\"",
            word(watch.mode)
        );
        document.report(
            mode_place.unwrap_or_else(|| place.clone()),
            Problem::Conflict { found: "the mount point \"/\"".to_owned(), why },
        );
    }
}

fn sentinel(raw: RawSentinel, document: &Document<'_>) -> Option<Sentinel> {
    if let Some(place) = raw.path.missing() {
        let why = "a sentinel needs the path of a file below the volume's root, such as \".mountie\"";
        document.report(place.clone(), Problem::Missing { why: why.to_owned() });
    }
    let path = raw.path.value()?;
    Some(Sentinel { path: path.0, content: raw.content.value().map(|content| content.0) })
}

/// The method, and whether `command` fits it. `None` when the method is broken.
fn method(raw: &RawRepair, document: &Document<'_>) -> Option<MethodName> {
    let method = match &raw.method {
        Given::Is(method, _) => *method,
        Given::Absent(_) => MethodName::Mount,
        Given::Broken => return None,
    };
    match (method, &raw.command) {
        (MethodName::Command, Given::Absent(place)) => {
            let why = "method \"command\" needs one, such as [\"/usr/local/sbin/fix\", \"{target}\"]";
            document.report(place.clone(), Problem::Missing { why: why.to_owned() });
        }
        (MethodName::Command, Given::Is(command, place)) => check_command(command, place, document),
        (MethodName::Mount | MethodName::Fstab | MethodName::Systemd, Given::Is(_, place)) => {
            let why = "which only method = \"command\" uses; write that, or remove the command".to_owned();
            document.report(place.clone(), Problem::Conflict { found: "a command".to_owned(), why });
        }
        (MethodName::Mount | MethodName::Fstab | MethodName::Systemd, Given::Absent(_))
        | (_, Given::Broken) => {}
    }
    Some(method)
}

/// What is written and would have no effect with this method.
fn check_unused(
    raw: &RawRepair,
    options: &Given<Vec<MountOption>>,
    method: Option<MethodName>,
    document: &Document<'_>,
) {
    let report = |place: &Place, found: &str, why: &str| {
        let (found, why) = (found.to_owned(), why.to_owned());
        document.report(place.clone(), Problem::Conflict { found, why });
    };
    if let (Given::Is(_, place), Some(MethodName::Mount | MethodName::Fstab | MethodName::Command)) =
        (&raw.unit, method)
    {
        let why = "which only method = \"systemd\" uses; write that, or remove the unit";
        report(place, "a unit", why);
    }
    if let (Given::Is(_, place), Some(MethodName::Systemd)) = (&raw.environment_file, method) {
        let why = "which a unit never sees; write EnvironmentFile= in the unit, and remove it here";
        report(place, "an environment file", why);
    }
    if let (Given::Is(options, place), Some(MethodName::Fstab | MethodName::Systemd)) = (options, method)
        && let Some(option) = options.iter().find(|option| !matches!(option.0.as_str(), "ro" | "rw"))
    {
        let why = "which this method does not use: what is mounted stands in /etc/fstab or in the unit; only \"ro\" \
                   and \"rw\" say something here, about how the volume should be";
        report(place, &show::text(&option.0), why);
    }
}

const TARGET: &str = "{target}";
const MOUNTPOINT: &str = "{mountpoint}";

fn check_command(command: &[Argument], place: &Place, document: &Document<'_>) {
    let report =
        |found: String, why: String| document.report(place.clone(), Problem::Conflict { found, why });
    let Some(program) = command.first() else {
        return report("an empty list".to_owned(), "expected a program and its arguments".to_owned());
    };
    if program.0.is_empty()
        || (program.0.contains('/') && !program.0.starts_with('/'))
        || program.0.contains('{')
    {
        let why =
            "which is no program; expected an absolute path, or a name to look up in PATH; there is no shell";
        report(show::text(&program.0), why.to_owned());
    }
    let has = |placeholder: &str| command.iter().any(|argument| argument.0.contains(placeholder));
    match (has(TARGET), has(MOUNTPOINT)) {
        (true, false) | (false, true) => {}
        (true, true) => report(
            "both {target} and {mountpoint}".to_owned(),
            "but only one can be meant: {target} mounts at a private place that is swapped in without a gap, \
             {mountpoint} repairs in place"
                .to_owned(),
        ),
        (false, false) => report(
            "no placeholder".to_owned(),
            "so the command would not know where to mount; write {target} (a private place that is swapped in \
             without a gap) or {mountpoint} (repairs in place) as an argument"
                .to_owned(),
        ),
    }
    for argument in command {
        for unknown in placeholders(&argument.0).filter(|found| ![TARGET, MOUNTPOINT].contains(found)) {
            let guess = closest(unknown, [TARGET, MOUNTPOINT]);
            let guess = guess.map_or(String::new(), |guess| format!("; did you mean {guess}?"));
            report(
                unknown.to_owned(),
                format!("which is no placeholder; there are {TARGET} and {MOUNTPOINT}{guess}"),
            );
        }
    }
}

/// `{word}` in an argument. Other braces belong to the command.
fn placeholders(argument: &str) -> impl Iterator<Item = &str> {
    argument.match_indices('{').filter_map(|(start, _)| {
        let rest = argument.get(start..)?;
        let found = rest.get(..=rest.find('}')?)?;
        let inner = found.get(1..found.len() - 1)?;
        (!inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
            .then_some(found)
    })
}

fn repair(raw: RawRepair, method: Option<MethodName>, mountpoint: Option<&BytePath>) -> Repair {
    let default = Repair::default();
    let method = match method {
        Some(MethodName::Command) => {
            Method::Command(raw.command.value().unwrap_or_default().into_iter().map(|word| word.0).collect())
        }
        Some(MethodName::Fstab) => Method::Fstab,
        Some(MethodName::Systemd) => Method::Systemd(
            raw.unit
                .value()
                .map_or_else(|| mountpoint.map(unit::of_mountpoint).unwrap_or_default(), |unit| unit.0),
        ),
        Some(MethodName::Mount) | None => Method::Mount,
    };
    Repair {
        method,
        timeout: raw.timeout.value().map_or(default.timeout, |timeout| timeout.0),
        max_attempts: raw.max_attempts.value().map_or(default.max_attempts, |attempts| attempts.0),
        environment_file: raw
            .environment_file
            .value()
            .map(|path| BytePath::new(path.0.as_os_str().as_encoded_bytes())),
        heal_below: raw.heal_below.value().unwrap_or(default.heal_below),
        // What the kubelet made is touched only where somebody has said so.
        consumers: match raw.swap_consumers.value() {
            None => default.consumers,
            Some(true) => Reach::All,
            Some(false) => Reach::Nothing,
        },
    }
}
