//! Ctrl-C, SIGTERM and SIGHUP: the user wants it to end, now and cleanly.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Doing, Exit, Failure};

/// The signals that end the program. While one of these lives they do not end it by themselves.
#[derive(Debug)]
pub(crate) struct Interrupts {
    signals: [Signal; 3],
}

impl Interrupts {
    pub(crate) fn new() -> Result<Interrupts, Failure> {
        let watch = |kind| signal(kind).doing(|| "watch for signals".into());
        let signals =
            [watch(SignalKind::interrupt())?, watch(SignalKind::terminate())?, watch(SignalKind::hangup())?];
        Ok(Interrupts { signals })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }

    /// What a command that was interrupted fails with.
    pub(crate) fn failure() -> Failure {
        Failure::new(Exit::Interrupted, "", "interrupted")
    }
}
