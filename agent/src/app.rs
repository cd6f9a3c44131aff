//! The composition root: the only place where subsystems meet.
//!
//! Everything is built here, in the order in which it depends on each other, and handed to the event loop. What
//! cannot be built turns off its own function, is named once in the log, and lowers its `source_up`; only two
//! things end the agent: a configuration that is wrong, and an address that somebody else has.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_core::id::VolumeId;
use agent_core::policy::Policy;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use crate::asking;
use crate::config::{self, Config, MountNamespace};
use crate::error_chain::chain;
use crate::exit_code::ExitCode;
use crate::export::chronicle::Chronicle;
use crate::export::http::listen::Placed;
use crate::export::http::{self, Api, Routers, listen};
use crate::export::metrics::Metrics;
use crate::kernel::namespace::{self, Namespace, NamespaceError};
use crate::probe::{self, Pool};
use crate::remediation::{self, Executor, needs};
use crate::sensor::SourceName;
use crate::store;
use crate::sys::descriptors;

mod asks;
mod changes;
pub mod command;
pub mod completions;
mod doctor;
mod doubt;
mod event_loop;
mod facts;
mod interrupted;
mod lock;
mod man;
mod marks;
mod permission;
mod plantings;
mod ready;
mod reports;
mod service_manager;
mod sources;
mod state;

use event_loop::{EventLoop, Parts};
use facts::Facts;
use permission::permitted;
use plantings::Plantings;
use sources::Sources;

/// Room for facts that the event loop has not read yet. The truth is in the kernel's counters and in the next
/// scan, so a sensor that finds the channel full waits; nothing is lost.
const CHANNEL: usize = 1024;

/// The program that workers and other children run: this very one, also after an upgrade has replaced the file.
const OWN_BINARY: &str = "/proc/self/exe";

/// Who waits for a probe gets a little more than its deadline.
const CHECK_GRACE: Duration = Duration::from_secs(1);

/// Runs the agent until a signal ends it.
pub(crate) async fn run(config: Config, from: config::Sources) -> ExitCode {
    info!(version = env!("CARGO_PKG_VERSION"), "Agent starts");
    descriptors::allow_many();
    let lock = match lock::take(&config.agent.lock_file()).await {
        Ok(lock) => Some(lock),
        Err(lock::LockError::Held { path, pid }) => {
            tracing::error!(path = %path.display(), pid, "Another agent runs on this node");
            return ExitCode::Internal;
        }
        Err(error @ lock::LockError::Io { .. }) => {
            warn!(error = %chain(&error), "No lock, continuing without protection against a second agent");
            None
        }
    };
    let (Ok(code) | Err(code)) = serve(config, from).await;
    drop(lock);
    info!("Agent ends");
    code
}

/// What stands in the way of repairs on this node, by volume. Reads files of the watched node: for commands, never for
/// the agent.
fn missing(config: &Config) -> Vec<(VolumeId, String)> {
    let root = match &config.agent.mount_namespace {
        MountNamespace::Own => Some(PathBuf::from("/")),
        MountNamespace::Path(file) => needs::root_of(file),
    };
    let mut missing = Vec::new();
    for spec in &config.policy.volumes {
        missing.extend(needs::missing(spec, root.as_deref()).into_iter().map(|what| (spec.id.clone(), what)));
    }
    missing
}

/// Serves until it is told to end. An error is the code of what has kept it from beginning.
async fn serve(mut config: Config, from: config::Sources) -> Result<ExitCode, ExitCode> {
    let hindrance = permission::hindrance(&config);
    let host = doctor::host_facts(hindrance);
    doctor::warn_of_missing(&host);
    config = permitted(config, hindrance);
    let listeners = listen(&config).await?;
    let namespace = namespace_or_own(&config);
    let opened = open_store(&config).await?;
    let metrics = metrics()?;
    let mut facts = first_facts(&config, &namespace, &opened.store);
    let (snapshots, receiver) = watch::channel(Arc::new(facts.snapshot(Vec::new(), Vec::new(), false)));
    let (commands_tx, commands) = mpsc::channel(64);
    let chronicle = Arc::new(Chronicle::new());
    let routers = http::routers(Api {
        snapshots: receiver,
        metrics: metrics.clone(),
        commands: commands_tx,
        chronicle: Arc::clone(&chronicle),
        host,
    });

    let (sensors_tx, sensors) = mpsc::channel(CHANNEL);
    let sources = Sources::start(&config, &namespace, &sensors_tx, &mut facts);
    let (probes_tx, probes) = mpsc::channel(CHANNEL);
    let pool = Pool::new(probe_settings(&namespace), probes_tx);
    let pinned = open_pins(&opened.store).await;
    let plantings = Plantings::new(probe_settings(&namespace), pinned.pins);
    let parts = Parts {
        executor: Executor::new(executor_settings(&config, &namespace)),
        asks: asks::Asks::new(asking_settings(&config, &namespace)),
        policy: config.policy,
        namespace: namespace.inode,
        opened,
        metrics,
        chronicle,
        facts,
        snapshots,
        commands,
        sensors,
        sources,
        probes,
        pool,
        plantings,
        pin_file: pinned.file,
        reload: Arc::new(move || Config::load(&from).map(|config| permitted(config, hindrance))),
    };
    let event_loop = EventLoop::new(parts);
    // Not before: the first scrape shows every volume that is expected.
    let placed = listeners.serve(&routers);
    let code = event_loop.run().await;
    placed.into_iter().for_each(Placed::clear);
    Ok(code)
}

fn executor_settings(config: &Config, namespace: &Namespace) -> remediation::Settings {
    remediation::Settings {
        exe: PathBuf::from(OWN_BINARY),
        namespace: namespace.enter.clone(),
        stage_root: config.policy.stage_root.clone(),
    }
}

fn metrics() -> Result<Metrics, ExitCode> {
    Metrics::new().map_err(|error| {
        tracing::error!(error = %chain(&error), "Metrics cannot be made");
        ExitCode::Internal
    })
}

/// What is known before anything was tried.
fn first_facts(config: &Config, namespace: &Namespace, store: &store::Store) -> Facts {
    let mut facts = Facts::new();
    facts.persist_errors = store.failures();
    facts.check_deadline = check_deadline(&config.policy);
    facts.source(SourceName::HostView, doctor::host_view(config, namespace));
    facts
}

async fn open_store(config: &Config) -> Result<store::Opened, ExitCode> {
    let opened = store::open(&config.agent.state_dir).await;
    for defect in &opened.defects {
        if matches!(defect, store::StoreError::Held { .. }) {
            tracing::error!(error = %chain(defect), "Another agent runs on this node");
            return Err(ExitCode::Internal);
        }
        warn!(error = %chain(defect), "State is not as it should be, continuing from memory where needed");
    }
    Ok(opened)
}

async fn open_pins(store: &store::Store) -> store::Pinned {
    let pinned = store.open_pins().await;
    for defect in &pinned.defects {
        store.count_failure();
        warn!(error = %chain(defect), "Pinned sentinels are not as they should be, continuing with the rest");
    }
    pinned
}

/// The open addresses.
struct Listeners {
    tcp: Option<tokio::net::TcpListener>,
    unix: Option<tokio::net::UnixListener>,
    plugin: Option<tokio::net::UnixListener>,
    placed: Vec<Placed>,
}

impl Listeners {
    /// Serves all of them; the sockets that are to be taken away at the end.
    fn serve(self, routers: &Routers) -> Vec<Placed> {
        if let Some(listener) = self.tcp {
            tokio::spawn(listen::serve_tcp(listener, routers.all.clone()));
        }
        if let Some(listener) = self.unix {
            tokio::spawn(listen::serve_unix(listener, routers.all.clone()));
        }
        if let Some(listener) = self.plugin {
            tokio::spawn(listen::serve_plugin(listener, routers.plugin.clone()));
        }
        self.placed
    }
}

async fn listen(config: &Config) -> Result<Listeners, ExitCode> {
    let tcp = match config.agent.listen {
        None => None,
        Some(address) => match listen::bind_tcp(&address.to_string()).await {
            Ok(listener) => Some(listener),
            Err(error) => {
                tracing::error!(error = %chain(&error), "Cannot listen");
                return Err(ExitCode::Internal);
            }
        },
    };
    let unix = match listen::bind_unix(&config.agent.socket).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            // Without the socket `mountie status` cannot ask; metrics and repair do not need it.
            warn!(error = %chain(&error), "No control socket, continuing without the commands that need it");
            None
        }
    };
    let plugin = match &config.agent.docker_plugin {
        None => None,
        Some(path) => match listen::bind_unix(path).await {
            Ok(listener) => Some(listener),
            Err(error) => {
                warn!(error = %chain(&error), "No socket for Docker, continuing without the volume plugin");
                None
            }
        },
    };
    let own = unix.as_ref().and_then(|_| Placed::at(&config.agent.socket));
    let for_docker = plugin.as_ref().and_then(|_| Placed::at(config.agent.docker_plugin.as_deref()?));
    Ok(Listeners { tcp, unix, plugin, placed: own.into_iter().chain(for_docker).collect() })
}

/// A number that other nodes do not have.
fn node_number() -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let host = nix::unistd::gethostname().unwrap_or_default();
    agent_core::hash::hash(&[boot.as_slice(), host.as_encoded_bytes()].concat())
}

fn namespace_of(config: &Config) -> Result<Namespace, NamespaceError> {
    namespace::resolve(config.agent.mount_namespace.as_path())
}

fn namespace_or_own(config: &Config) -> Namespace {
    namespace_of(config).unwrap_or_else(|error| {
        tracing::error!(
            error = %chain(&error),
            "The host's mount namespace is out of reach, watching the agent's own instead"
        );
        namespace::own()
    })
}

fn asking_settings(config: &Config, namespace: &Namespace) -> asking::Settings {
    let setting = config.agent.mount_namespace.as_path();
    asking::Settings {
        exe: PathBuf::from(OWN_BINARY),
        launcher: vec![OWN_BINARY.into(), asking::ASK_SUBCOMMAND.into()],
        namespace: namespace.enter.clone(),
        network: namespace::network_of(setting),
    }
}

fn probe_settings(namespace: &Namespace) -> probe::Settings {
    probe::Settings {
        exe: PathBuf::from(OWN_BINARY),
        namespace: namespace.enter.clone(),
        ..probe::Settings::default()
    }
}

/// How long a person waits for a look: the longest deadline of any volume and a bit.
fn check_deadline(policy: &Policy) -> Duration {
    let deadlines = policy.volumes.iter().map(|volume| volume.watch.deadline);
    deadlines.fold(policy.defaults.deadline, Duration::max) + CHECK_GRACE
}
