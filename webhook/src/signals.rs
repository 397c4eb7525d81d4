//! SIGTERM and SIGINT: the first starts a graceful shutdown, the second ends the process
//! immediately.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Both signals.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Replaces the default handlers, which end the process.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Cancels `shutdown` at the first signal, and returns at the second.
    pub async fn second(mut self, shutdown: CancellationToken) {
        self.next().await;
        shutdown.cancel();
        self.next().await;
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
