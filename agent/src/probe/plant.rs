//! Putting a sentinel on a volume: one request to a worker of its own, which is not used again.

use std::time::Duration;

use agent_core::engine::ProbeOrder;
use agent_core::observation::ProbeStep;

use super::Settings;
use super::planting::{PlantFault, Planted, Planting};
use super::process::{Lost, StartError, Worker};
use super::protocol::{Malformed, Reply, Request};

/// Why a worker has not said whether there is a sentinel.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// None could be started.
    #[error("no probe worker")]
    Start(#[source] StartError),
    /// It died, or said something else.
    #[error("probe worker lost")]
    Lost(#[source] Lost),
    /// It has not come back in time.
    #[error("no answer in time while {}", doing(*.0))]
    TimedOut(ProbeStep),
}

const fn doing(step: ProbeStep) -> &'static str {
    match step {
        ProbeStep::Identity => "walking to the mount point",
        ProbeStep::Root => "asking for the attributes of the root",
        ProbeStep::Sentinel => "reading the sentinel",
        ProbeStep::Device => "reading the device",
        ProbeStep::Write => "writing the sentinel",
    }
}

/// A worker that may still hang in the kernel. Dropping it kills the process and waits for nothing.
#[derive(Debug)]
pub struct Remains(Option<Worker>);

impl Remains {
    /// Returns when the process is gone: at once, unless the kernel holds it.
    pub async fn gone(self) {
        if let Some(worker) = self.0 {
            worker.end().await;
        }
    }
}

/// What a worker says about a sentinel.
pub type Answer = Result<Result<Planted, PlantFault>, NoAnswer>;

/// Has a worker put a sentinel where the order says. Must be called on the thread that lives as long as the agent.
pub async fn plant(
    settings: &Settings,
    order: &ProbeOrder,
    planting: Planting,
    deadline: Duration,
) -> (Answer, Remains) {
    let mut worker = match Worker::spawn(settings) {
        Ok(worker) => worker,
        Err(error) => return (Err(NoAnswer::Start(error)), Remains(None)),
    };
    let request = Request { planting: Some(planting), ..Request::from(order) };
    let answer = match tokio::time::timeout(deadline, converse(&mut worker, &request)).await {
        Ok(answer) => answer,
        Err(_) => Err(NoAnswer::TimedOut(worker.step().unwrap_or(ProbeStep::Identity))),
    };
    (answer, Remains(Some(worker)))
}

async fn converse(worker: &mut Worker, request: &Request) -> Answer {
    worker.greet().await.map_err(NoAnswer::Start)?;
    worker.ask(request).await.map_err(NoAnswer::Lost)?;
    match worker.next_reply().await.map_err(NoAnswer::Lost)? {
        Reply::Planted(result) => Ok(result),
        Reply::Ready | Reply::Refused(_) | Reply::Done(_) => {
            Err(NoAnswer::Lost(Lost::Malformed(Malformed::Unknown {
                what: "reply to a request for a sentinel",
                value: 0,
            })))
        }
    }
}
