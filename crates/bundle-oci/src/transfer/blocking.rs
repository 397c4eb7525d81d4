//! Runs blocking work (inflating, hashing, writing) on a separate thread, which reads the pieces of
//! a stream.

use std::io::{self, Read};

use bytes::{Buf as _, Bytes};
use futures::{Stream, StreamExt as _};
use tokio::sync::mpsc;

/// Maximum number of pieces that wait for the thread. Each piece has at most 1 MiB.
const BUFFERED_PIECES: usize = 4;

/// Runs `work` on a new thread, with the stream as a reader.
///
/// Returns the result of `work`, and the error that ended the stream, if there was an error. `work`
/// cannot detect this error, because `work` reads only truncated content. The result is `None` if
/// the thread panicked. If this future is dropped, the reader of `work` reports the end of its
/// input.
pub async fn on_thread<T: Send + 'static, E>(
    pieces: impl Stream<Item = Result<Bytes, E>>,
    work: impl FnOnce(StreamReader) -> T + Send + 'static,
) -> Option<(T, Result<(), E>)> {
    let (sender, source) = mpsc::channel(BUFFERED_PIECES);
    let thread = tokio::task::spawn_blocking(move || {
        work(StreamReader {
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
        // The stream has more bytes than were announced, so `work` has stopped reading.
        if sender.send(piece?).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Reader over the pieces of a stream.
#[derive(Debug)]
pub struct StreamReader {
    source: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Read for StreamReader {
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
