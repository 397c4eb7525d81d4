//! Pieces that arrive, read on a thread that may wait: inflating, hashing and writing take a core, and must not hold up the connection's.
//! Not here: where the pieces come from (registry, blob) and what is made of them (unpack).

use std::io::{self, Read};

use bytes::{Buf as _, Bytes};
use futures::{Stream, StreamExt as _};
use tokio::sync::mpsc;

/// Pieces that wait for the thread; each is at most a MiB.
const AHEAD: usize = 4;

/// Runs `work` on a thread of its own, over what arrives. Gives what it made, and how the arriving ended, which explains content that is short.
/// `None` if the thread ended early. If this call ends early, `work` sees the end of its input.
pub async fn on_thread<T: Send + 'static, E>(
    pieces: impl Stream<Item = Result<Bytes, E>>,
    work: impl FnOnce(Arriving) -> T + Send + 'static,
) -> Option<(T, Result<(), E>)> {
    let (sender, source) = mpsc::channel(AHEAD);
    let thread = tokio::task::spawn_blocking(move || {
        work(Arriving {
            source,
            current: Bytes::new(),
        })
    });
    let fed = feed(pieces, sender).await;
    Some((thread.await.ok()?, fed))
}

async fn feed<E>(
    pieces: impl Stream<Item = Result<Bytes, E>>,
    sender: mpsc::Sender<Bytes>,
) -> Result<(), E> {
    let mut pieces = std::pin::pin!(pieces);
    while let Some(piece) = pieces.next().await {
        // The other side has seen enough: more came than was announced.
        if sender.send(piece?).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// What arrives, as something to read.
#[derive(Debug)]
pub struct Arriving {
    source: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.source.blocking_recv() {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let taken = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..taken]);
        Ok(taken)
    }
}
