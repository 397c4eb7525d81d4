//! The stream of a connection. Each read and write checks the limits.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{Client, lock};

/// The stream of a connection. The stream ends early if the client is not authenticated in time, or
/// if the client does not receive a write in time.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    client: Arc<Client>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    deadline: Pin<Box<Sleep>>,
    /// True until the client is authenticated.
    is_watched: bool,
    /// Bytes that were read before the client was authenticated.
    received: usize,
    /// Timer of a write that the client does not receive. The stream ends when the timer expires.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Connection<S> {
    /// Creates the stream of the connection of `client`. The stream ends when `close` is cancelled.
    pub(super) fn new(stream: S, client: Client, close: CancellationToken) -> Self {
        let deadline = Box::pin(sleep(client.limits.max_age));
        Self {
            stream,
            client: Arc::new(client),
            closed: Box::pin(close.cancelled_owned()),
            deadline,
            is_watched: true,
            received: 0,
            stalled: None,
        }
    }

    /// Returns the client for the requests of the connection.
    pub fn client(&self) -> Arc<Client> {
        self.client.clone()
    }

    /// Returns an error if the connection must end.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.closed.as_mut().poll(context).is_ready() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !self.is_watched {
            return Ok(());
        }
        if self.deadline.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            let expires_at = self.client.expires_at();
            if expires_at.is_some_and(|expires_at| expires_at <= now) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if self.client.is_authenticated() {
                self.is_watched = false;
            } else {
                // A connection can have accepted requests and stay unauthenticated, because the
                // limit of authenticated connections is reached. Such a connection has no expiry,
                // so the check is repeated later.
                let again = expires_at.unwrap_or(now + self.client.limits.max_age);
                self.deadline.as_mut().reset(again);
                // Polling registers the task for the new time.
                let _pending = self.deadline.as_mut().poll(context);
            }
        }
        Ok(())
    }

    /// Returns true if no further bytes may be read before the client is authenticated. The
    /// authentication wakes the task of `context`.
    fn waits_for_authentication(&self, context: &Context<'_>) -> bool {
        if self.received < self.client.limits.received {
            return false;
        }
        self.client.reader.register(context.waker());
        !self.client.is_accepted.load(Ordering::Acquire)
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        let mut state = lock(&self.client.state);
        state.unauthenticated.remove(&self.client.number);
        state.authenticated.remove(&self.client.number);
        state.delayed.wake();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        if self.waits_for_authentication(context) {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.received = (self.received).saturating_add(buffer.filled().len() - before);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(context, bytes) {
            self.stalled = None;
            return Poll::Ready(written);
        }
        let limit = self.client.limits.max_stall;
        let stalled = (self.stalled).get_or_insert_with(|| Box::pin(sleep(limit)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
