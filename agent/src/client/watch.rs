//! `mountie status --watch`: the same picture, again whenever something happens.
//!
//! On a terminal it is drawn in place, at once after every event and every second for the ages. Elsewhere one picture
//! follows the other whenever a volume's condition is another than before, and complaints go where complaints go.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::screen::Screen;
use super::status::{DOCUMENT, ask, picture, verdict};
use super::stream::{Following, News};
use super::table::clean;
use super::{ClientError, Console, Look, Output, age};
use crate::exit_code::ExitCode;
use crate::export::view::VolumeList;
use crate::sys::{clock, terminal};

/// The longest time between two pictures.
const REDRAW: Duration = Duration::from_secs(1);
/// The shortest: events may come by the thousand.
const GATHER: Duration = Duration::from_millis(100);

/// Shows pictures until `until`. There must be an agent at first; one that goes is waited for.
pub(super) async fn watch(
    socket: &Path,
    output: Output,
    until: impl Future<Output = ()>,
    console: &mut Console<'_>,
) -> Result<ExitCode, ClientError> {
    let mut watched = Watched { list: ask(socket).await?, gone: None };
    let mut until = pin!(until);
    let mut news = Following::begin(socket, None, None);
    let mut tick = interval(REDRAW);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // JSON and YAML are for programs, and so is a pipe.
    let is_drawn = console.look.terminal && matches!(output, Output::Table | Output::Wide | Output::Name);
    let look = console.look;
    // It is listened for from its first poll on, which must be before there is something to put in order.
    tokio::select! {
        biased;
        () = &mut until => return Ok(watched.verdict()),
        () = std::future::ready(()) => {}
    }
    let mut view = if is_drawn {
        View::Drawn { screen: Screen::new(console.out), keys: Keys::new(), look }
    } else {
        View::Printed { console, last: None }
    };
    loop {
        match view.show(&watched, output) {
            Err(error) if error.is_reader_gone() => return Ok(watched.verdict()),
            shown => shown?,
        }
        // Who is asked may not answer, and Ctrl-C is heard all the same.
        tokio::select! {
            () = &mut until => return Ok(watched.verdict()),
            () = next(&mut news, &mut tick, &mut view) => {}
        }
        tokio::select! {
            () = &mut until => return Ok(watched.verdict()),
            answer = ask(socket) => watched.take(answer),
        }
    }
}

/// Waits until it is worth asking again.
async fn next(news: &mut Following, tick: &mut tokio::time::Interval, view: &mut View<'_, '_>) {
    tokio::select! {
        _ = tick.tick() => {}
        heard = news.next() => {
            if matches!(heard, News::Event(..) | News::Lost(..)) {
                sleep(GATHER).await;
            } else {
                // It is asked once a second whether the agent is there.
                tick.tick().await;
            }
            news.drain();
        }
        () = view.key() => {}
    }
}

/// What is known.
struct Watched {
    list: VolumeList,
    /// Why there is nothing newer.
    gone: Option<String>,
}

impl Watched {
    /// How the command ends, as if it had been asked now.
    fn verdict(&self) -> ExitCode {
        if self.gone.is_some() { ExitCode::Unavailable } else { verdict(&self.list) }
    }

    fn take(&mut self, answer: Result<VolumeList, ClientError>) {
        match answer {
            Ok(list) => *self = Self { list, gone: None },
            Err(error) => self.gone = Some(error.to_string()),
        }
    }

    /// What stands above the table on a terminal.
    fn head(&self) -> String {
        let list = &self.list;
        let sick = list.volumes.iter().filter(|volume| volume.sick).count();
        let at = list.at.whole_seconds();
        let head = match &self.gone {
            Some(why) => {
                let old = age::span(clock::wall().saturating_sub(list.at.since_epoch()));
                format!("what was known {old} ago, because {why}")
            }
            None if !list.ready => format!("{at}  not every volume has been looked at yet"),
            None => format!("{at}  volumes: {}, sick: {sick}", list.volumes.len()),
        };
        clean(&head)
    }

    /// What makes a picture worth printing: not its ages and counts.
    fn face(&self) -> Vec<String> {
        let volumes = self.list.volumes.iter().map(|volume| {
            let paused = volume.paused.as_ref().map(|pause| (pause.all, pause.since));
            format!(
                "{:?}",
                (
                    (&volume.id, &volume.state, &volume.reason, &volume.advice, volume.since),
                    (&volume.mountpoint, &volume.device, &volume.mode, volume.incident.is_some(), paused),
                )
            )
        });
        let incidents = self.list.incidents.iter().map(|incident| incident.id.to_string());
        volumes.chain(incidents).collect()
    }
}

/// Where it is shown.
enum View<'c, 'o> {
    Drawn { screen: Screen<'c>, keys: Option<Keys>, look: Look },
    Printed { console: &'c mut Console<'o>, last: Option<(Vec<String>, Option<String>)> },
}

impl View<'_, '_> {
    fn show(&mut self, watched: &Watched, output: Output) -> Result<(), ClientError> {
        match self {
            // Another command has the terminal.
            Self::Drawn { .. } if !terminal::is_ours(&std::io::stdout()) => Ok(()),
            Self::Drawn { screen, look, .. } => {
                let text = format!("{}\n{}", watched.head(), picture(&watched.list, output, *look)?);
                let window = terminal::window(&std::io::stdout());
                screen.draw(&look.spelled(&text), window).map_err(|source| ClientError::Output { source })
            }
            Self::Printed { console, last } => {
                let (face, gone) = (watched.face(), watched.gone.clone());
                let (old, was_gone) = last.take().unzip();
                match (&gone, was_gone.flatten()) {
                    (Some(why), before) if before.as_ref() != Some(why) => {
                        console.complain(&format_args!("{why}; waiting for it"));
                    }
                    (None, Some(_)) => console.complain(&"the agent answers again"),
                    _ => {}
                }
                let is_news = old.as_ref() != Some(&face);
                *last = Some((face, gone));
                if !is_news {
                    return Ok(());
                }
                let begin = if output == Output::Yaml { DOCUMENT } else { "" };
                console.go_on(&format!("{begin}{}", picture(&watched.list, output, console.look)?))
            }
        }
    }

    /// Waits for what the terminal says: another size, or that the command shall stop.
    async fn key(&mut self) {
        let Self::Drawn { screen, keys: Some(keys), .. } = self else { return std::future::pending().await };
        tokio::select! {
            _ = keys.resized.recv() => {}
            _ = keys.stopped.recv() => {
                // A terminal that is gone is noticed at the next picture.
                let _ = screen.leave();
                terminal::stop_here();
            }
        }
    }
}

/// What a terminal says by signals.
struct Keys {
    resized: Signal,
    stopped: Signal,
}

impl Keys {
    /// Without them pictures are drawn all the same, for the right size after a second.
    fn new() -> Option<Self> {
        let stopped = signal(SignalKind::from_raw(terminal::STOP_BY_KEY)).ok()?;
        Some(Self { resized: signal(SignalKind::window_change()).ok()?, stopped })
    }
}
