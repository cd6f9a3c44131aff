//! The Helm chart and the plain manifests, which are made from it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Scene, Step};
use crate::command::root;
use crate::quietly::{quiet, tail};

const KIND: &str = "chart";

pub(super) const STEPS: &[Step] = &[
    Step { kind: KIND, name: "helm lint", run: lint },
    Step { kind: KIND, name: "values that must be refused", run: refused },
    Step { kind: KIND, name: "templates against the schemas of Kubernetes", run: schemas },
    Step { kind: KIND, name: "plain manifests", run: manifests },
    Step { kind: KIND, name: "helm package", run: package },
];

/// Versions of Kubernetes: the oldest that the chart is for, the last before a field that it uses, and a new one.
const KUBERNETES: [&str; 3] = ["1.25.0", "1.29.0", "1.36.0"];
/// Kinds whose schemas do not come with Kubernetes.
const OF_THE_OPERATOR: [&str; 2] = ["PodMonitor", "PrometheusRule"];

/// The values with which the operator is given something.
const OPERATORS_SET: &str = "prometheus";

/// Values, and what must be said of them.
const REFUSED: &[(&[&str], &str)] = &[
    (&["--set", "nonsense=1"], "nonsense"),
    (&["--set", "port=70000"], "port"),
    (&["--set", "capabilities={CAP_SYS_ADMIN}"], "capabilities"),
    (&["--set", "stateDir=var/lib"], "stateDir"),
    (&["--set", "updateStrategy.rollingUpdate.maxSurge=1"], "maxSurge"),
    (&["--set", "runtimeDir=/run/other"], "runtimeDir"),
    (&["--set", "listenAddress=127.0.0.1"], "listenAddress"),
    (&["--set", "listenAddress=[::1]"], "listenAddress"),
    (&["--set", "repairs.enabled=true,privileged=false"], "privileged: true"),
    (&["--set-string", "config=[defaults]\nmode = 'act'"], "repairs.enabled"),
];

/// Lines that only Helm reads or keeps right: nobody else counts the checksum anew.
const OF_HELM: [&str; 5] = [
    "# Source:",
    "helm.sh/chart:",
    "managed-by: Helm",
    "checksum/config:",
    "started anew when its configuration",
];

/// Objects of the operator, judged by the schemas in the repository.
const JUDGE: &str = include_str!("chart/judge.py");

fn chart() -> PathBuf {
    root().join("deploy/helm/mountie")
}

/// Sets of values that people use, by name; the defaults come first.
fn sets() -> Result<Vec<(String, Option<PathBuf>)>> {
    let folder = root().join("deploy/helm/values");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let named = |path: PathBuf| (path.file_stem().unwrap_or_default().to_string_lossy().into(), Some(path));
    Ok([("defaults".to_owned(), None)].into_iter().chain(files.into_iter().map(named)).collect())
}

fn lint(scene: &Scene) -> Result<String> {
    held_to_the_workspace(&scene.version)?;
    let mut said = Vec::new();
    for (name, values) in sets()? {
        let mut helm = scene.tools.helm()?;
        helm.args(["lint", "--strict", "--quiet"]).arg(chart()).args(values_of(values.as_deref()));
        quiet(&mut helm).with_context(|| format!("helm lint with {name}"))?;
        said.push(name);
    }
    Ok(format!("strict, with values: {}", said.join(", ")))
}

/// The versions of chart and agent are those of the workspace.
fn held_to_the_workspace(version: &str) -> Result<()> {
    let path = chart().join("Chart.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    for key in ["version", "appVersion"] {
        if !text.lines().any(|line| line == format!("{key}: {version}")) {
            bail!("{}: {key} is not {version}", path.display());
        }
    }
    Ok(())
}

fn values_of(values: Option<&Path>) -> impl Iterator<Item = &OsStr> {
    values.into_iter().flat_map(|path| [OsStr::new("--values"), path.as_os_str()])
}

fn refused(scene: &Scene) -> Result<String> {
    for (arguments, word) in REFUSED {
        let mut helm = scene.tools.helm()?;
        helm.args(["template", "mountie"]).arg(chart()).args(*arguments);
        let output = helm.output().context("failed to start helm")?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() || !said.contains(word) {
            bail!("{} was not refused as it should be:\n{}", arguments.join(" "), tail(&said, 5));
        }
    }
    Ok(format!("{} of them, each with its name", REFUSED.len()))
}

fn render(scene: &Scene, kubernetes: &str, arguments: &[&OsStr]) -> Result<String> {
    let mut helm = scene.tools.helm()?;
    helm.args(["template", "mountie"]).arg(chart());
    helm.args(["--namespace", "mountie", "--kube-version", kubernetes]).args(arguments);
    quiet(&mut helm)
}

fn schemas(scene: &Scene) -> Result<String> {
    let place = scene.folder.join("rendered");
    std::fs::create_dir_all(&place)?;
    let (mut objects, mut operator) = (0, 0);
    for (name, values) in sets()? {
        for kubernetes in KUBERNETES {
            let arguments: Vec<_> = values_of(values.as_deref()).collect();
            let text = render(scene, kubernetes, &arguments)?;
            if name == OPERATORS_SET {
                of_the_operator(&text)?;
            }
            let file = place.join(format!("{name}-{kubernetes}.yaml"));
            std::fs::write(&file, text)?;
            let judged = validate(scene, &file, kubernetes).with_context(|| format!("{}", file.display()))?;
            objects += judged.0;
            operator += judged.1;
        }
    }
    let hostile = place.join("misspelt.yaml");
    let good = std::fs::read_to_string(place.join(format!("defaults-{}.yaml", KUBERNETES[2])))?;
    std::fs::write(&hostile, good.replace("hostPID:", "hostPidd:"))?;
    if validate(scene, &hostile, KUBERNETES[2]).is_ok() {
        bail!("a misspelt key was not found: the check is worth nothing");
    }
    Ok(format!("{objects} objects for {}, {operator} of the Prometheus operator", KUBERNETES.join(", ")))
}

/// What the operator is given is there, and makes series as the rules want them: none that an update renames.
fn of_the_operator(text: &str) -> Result<()> {
    for kind in OF_THE_OPERATOR {
        if !text.lines().any(|line| line == format!("kind: {kind}")) {
            bail!("the chart gives no {kind} with the values {OPERATORS_SET}");
        }
    }
    for part in ["targetLabel: instance", "action: labeldrop", "regex: pod|container|endpoint|namespace"] {
        if !text.contains(part) {
            bail!("the PodMonitor has no `{part}`: dashboards/README.md says what the rules need");
        }
    }
    Ok(())
}

/// How many objects are right, of Kubernetes and of the operator; an error has those that are not.
fn validate(scene: &Scene, file: &Path, kubernetes: &str) -> Result<(usize, usize)> {
    let mut validate = scene.tools.python("kubernetes-validate")?;
    validate.args(["--strict", "--kubernetes-version", kubernetes]).arg(file);
    let output = validate.output().context("failed to start kubernetes-validate")?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let is_expected = |line: &str| {
        line.contains(" passed for ")
            || OF_THE_OPERATOR
                .iter()
                .any(|kind| line.contains(&format!("Couldn't find schema for kind {kind} ")))
    };
    let odd: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty() && !is_expected(line)).collect();
    if !odd.is_empty() {
        bail!("{}", odd.join("\n"));
    }
    let passed = said.lines().filter(|line| line.contains(" passed for ")).count();
    if passed == 0 {
        bail!("nothing was validated");
    }
    let mut judge = scene.tools.python("python")?;
    judge.args(["-c", JUDGE]).arg(root().join("deploy/kubernetes/schemas")).arg(file);
    Ok((passed, quiet(&mut judge)?.trim().parse().context("the judge of schemas told no number")?))
}

/// What people apply without Helm is what the chart gives.
fn manifests(scene: &Scene) -> Result<String> {
    let path = root().join("deploy/kubernetes/mountie.yaml");
    let head = "# Made from the chart by `cargo xtask package --bless chart`, for those who do not use Helm; after namespace.yaml:\n\
                #   kubectl apply -f namespace.yaml -f mountie.yaml\n\
                # Dashboards and rules are not in it: see dashboards/README.md.\n";
    let bare = ["--set", "dashboards.enabled=false,rules.configMap=false"].map(OsStr::new);
    let rendered = render(scene, KUBERNETES[2], &bare)?;
    // What only Helm reads, or makes anew with each change.
    let is_of_helm = |line: &str| OF_HELM.iter().any(|part| line.contains(part));
    let body: String =
        rendered.lines().filter(|line| !is_of_helm(line)).flat_map(|line| [line, "\n"]).collect();
    let text = format!("{head}{body}");
    if scene.bless {
        std::fs::write(&path, &text)?;
    }
    if std::fs::read_to_string(&path).unwrap_or_default() != text {
        bail!("{} is not what the chart gives; cargo xtask package --bless chart", path.display());
    }
    let (objects, _) = validate(scene, &path, KUBERNETES[2])?;
    Ok(format!("{objects} objects, as the chart gives them"))
}

fn package(scene: &Scene) -> Result<String> {
    let mut helm = scene.tools.helm()?;
    helm.arg("package").arg(chart()).arg("--destination").arg(&scene.folder);
    quiet(&mut helm)?;
    let archive = scene.folder.join(format!("mountie-{}.tgz", scene.version));
    let list = quiet(Command::new("tar").arg("tzf").arg(&archive))?;
    let files: Vec<&str> = list.lines().collect();
    let dashboards =
        files.iter().filter(|file| file.starts_with("mountie/files/dashboards/") && file.ends_with(".json"));
    let dashboards = dashboards.count();
    let has_rules = files.contains(&"mountie/files/dashboards/mountie.rules.yml");
    if dashboards == 0 || !has_rules || files.iter().any(|file| file.contains("/dashboards/tests/")) {
        bail!("{} has not exactly the dashboards and rules:\n{list}", archive.display());
    }
    // Installed from the archive as from the folder.
    let mut again = scene.tools.helm()?;
    quiet(again.args(["template", "mountie"]).arg(&archive))?;
    let size = std::fs::metadata(&archive)?.len() / 1024;
    Ok(format!("mountie-{}.tgz, {size} KiB, {dashboards} dashboards", scene.version))
}
