//! Ctrl-C, SIGTERM and SIGHUP end a command cleanly and soon. Servers ignore SIGHUP: it only means that the
//! terminal they were started from was closed.

use std::sync::mpsc;
use std::time::Duration;
use std::{io, thread};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::exit::{Doing, Exit, Failure};
use crate::output::report::complain;

/// Time limit for a command to undo what it has begun.
pub(crate) const GRACE: Duration = Duration::from_millis(700);
/// Time limit for the demo or a bench to remove its files.
pub const GRACE_DEMO: Duration = Duration::from_secs(10);
/// Time limit for writing the last message to standard error.
const LAST_WORD: Duration = Duration::from_millis(100);

/// The signals that end the program. While a value lives, their default action is off.
#[derive(Debug)]
pub struct Interrupts {
    signals: [Signal; 3],
    of: Of,
}

/// Kind of process that gets the signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// A command: each signal ends it.
    Command,
    /// A server: SIGHUP is logged and ignored.
    Server,
    /// `braid up`, which supervises servers and has no log: like a server, but reports on standard error.
    Supervisor,
}

/// The message when a signal is ignored.
const IGNORED: &str = "SIGHUP is ignored: there is nothing to reload; SIGTERM stops";

impl Interrupts {
    pub(crate) fn new(of: Of) -> Result<Interrupts, Failure> {
        let watch = |kind| signal(kind).doing(|| "watch for signals".into());
        let signals =
            [watch(SignalKind::interrupt())?, watch(SignalKind::terminate())?, watch(SignalKind::hangup())?];
        Ok(Interrupts { signals, of })
    }

    /// Waits for the next signal that ends the program, and returns its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        let [interrupt, terminate, hangup] = &mut self.signals;
        loop {
            tokio::select! {
                _ = interrupt.recv() => return "SIGINT",
                _ = terminate.recv() => return "SIGTERM",
                _ = hangup.recv() => match self.of {
                    Of::Command => return "SIGHUP",
                    Of::Server => tracing::info!("{IGNORED}"),
                    Of::Supervisor => complain(IGNORED),
                },
            }
        }
    }

    /// Makes the program end at most `grace` after the first signal, even if it hangs in a system call, such
    /// as on an unreachable network file system or an output that is not read.
    pub(crate) fn end_after(grace: Duration) -> Result<(), Failure> {
        let what = || "watch for signals".to_owned();
        let (watching, is_watching) = mpsc::channel();
        // With its own runtime, since the main one may be what hangs.
        let watch = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime.doing(what).map_err(|failure| watching.send(Err(failure))) else {
                return;
            };
            runtime.block_on(async {
                match Interrupts::new(Of::Command) {
                    Err(failure) => drop(watching.send(Err(failure))),
                    Ok(mut interrupts) => {
                        let _ = watching.send(Ok(()));
                        interrupts.next().await;
                        end(grace);
                    }
                }
            });
        };
        thread::Builder::new().name("interrupt".into()).spawn(watch).doing(what)?;
        is_watching.recv().map_err(io::Error::other).doing(what)?
    }

    /// The error of an interrupted command.
    pub fn failure() -> Failure {
        Failure::new(Exit::Interrupted, "", "interrupted")
    }
}

/// Ends the program after `grace`, whatever its other threads do.
fn end(grace: Duration) -> ! {
    thread::sleep(grace);
    // On its own thread, since standard error may be what hangs.
    let said = thread::Builder::new().spawn(|| complain(&Interrupts::failure().to_string()));
    if said.is_ok() {
        thread::sleep(LAST_WORD);
    }
    std::process::exit(i32::from(Exit::Interrupted as u8))
}
