//! Limits for connections of unauthenticated clients: their number, age and received bytes. A new
//! connection closes the oldest one. `guard` authenticates clients.

use std::collections::{BTreeMap, HashMap};
use std::future::Ready;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::middleware::AddExtension;
use axum_server::accept::Accept;
use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::Layer as _;

/// The connections of one listener. Clones share them.
#[derive(Debug, Clone)]
pub struct Connections {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

/// The limits of a listener.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Unauthenticated connections at the same time. An additional one closes the oldest connection
    /// of the address with the most connections.
    pub unauthenticated: usize,
    /// Maximum age of an unauthenticated connection.
    pub max_age: Duration,
    /// Received bytes, including those of TLS, after which nothing more is read before a request of
    /// the connection has a valid path. Exceeded by at most one read.
    pub received: usize,
    /// Authenticated connections at the same time. Further clients are served, but stay subject to
    /// the limits of unauthenticated ones.
    pub authenticated: usize,
    /// Authenticated connections of one address at the same time.
    pub authenticated_by_address: usize,
    /// Requests of an unauthenticated connection that can wait for their authentication at the same
    /// time.
    pub waiting: usize,
    /// Rejected requests after which an unauthenticated connection is closed by the next one.
    pub rejected: u32,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Ordered by number, so the oldest comes first.
    unauthenticated: BTreeMap<u64, UnauthenticatedConnection>,
    /// The addresses of the authenticated connections.
    authenticated: BTreeMap<u64, IpAddr>,
}

#[derive(Debug)]
struct UnauthenticatedConnection {
    from: IpAddr,
    close: CancellationToken,
}

impl State {
    /// Removes the oldest connection of the address with the most connections. Of several such
    /// addresses, the one with the oldest connection.
    fn evict(&mut self) -> Option<UnauthenticatedConnection> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for connection in self.unauthenticated.values() {
            *counts.entry(connection.from).or_default() += 1;
        }
        let most = counts.values().max()?;
        let (number, _) = (self.unauthenticated.iter())
            .find(|(_, connection)| counts.get(&connection.from) == Some(most))?;
        let number = *number;
        self.unauthenticated.remove(&number)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing panics while the lock is held.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connections {
    /// Creates the connections of a listener with these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: Arc::default(),
        }
    }

    /// Adds a connection from this address as an unauthenticated one.
    pub fn admit<S>(&self, stream: S, from: IpAddr) -> Connection<S> {
        let close = CancellationToken::new();
        let mut state = lock(&self.state);
        let number = state.next;
        state.next += 1;
        // The same address for IPv4 and IPv4-mapped IPv6.
        let from = from.to_canonical();
        let connection = UnauthenticatedConnection {
            from,
            close: close.clone(),
        };
        state.unauthenticated.insert(number, connection);
        if state.unauthenticated.len() > self.limits.unauthenticated
            && let Some(evicted) = state.evict()
        {
            evicted.close.cancel();
        }
        drop(state);
        let client = Client {
            number,
            from,
            limits: self.limits,
            state: self.state.clone(),
            waiting: Arc::new(Semaphore::new(self.limits.waiting)),
            rejected: AtomicU32::new(0),
            is_accepted: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            close: close.clone(),
        };
        Connection {
            stream,
            client: Arc::new(client),
            closed: Box::pin(close.cancelled_owned()),
            deadline: Box::pin(sleep(self.limits.max_age)),
            is_watched: true,
            received: 0,
        }
    }
}

/// The client of one connection. Requests carry it as an extension.
#[derive(Debug)]
pub struct Client {
    number: u64,
    from: IpAddr,
    limits: Limits,
    state: Arc<Mutex<State>>,
    waiting: Arc<Semaphore>,
    rejected: AtomicU32,
    /// A request had a valid path.
    is_accepted: AtomicBool,
    /// Waits for that.
    reader: AtomicWaker,
    close: CancellationToken,
}

/// A request that waits for its authentication, until the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Waiting {
    _place: Option<Arc<OwnedSemaphorePermit>>,
}

impl Client {
    /// Returns the address of the client; of an IPv4-mapped IPv6 address, the IPv4 address.
    pub fn address(&self) -> IpAddr {
        self.from
    }

    /// Lets a request wait for its authentication. Returns `None` if too many requests of this
    /// unauthenticated client wait already; the request must be rejected then.
    pub fn wait(&self) -> Option<Waiting> {
        let place = match self.waiting.clone().try_acquire_owned() {
            Ok(place) => Some(Arc::new(place)),
            Err(_) if self.is_unauthenticated() => return None,
            Err(_) => None,
        };
        Some(Waiting { _place: place })
    }

    /// Marks the client as authenticated. Its connection is no longer closed because of its age or
    /// of other connections, and reading continues.
    pub fn set_authenticated(&self) {
        if !self.is_accepted.swap(true, Ordering::AcqRel) {
            self.reader.wake();
        }
        let mut state = lock(&self.state);
        let addresses = state.authenticated.values();
        let same = addresses.filter(|address| **address == self.from).count();
        if state.authenticated.len() < self.limits.authenticated
            && same < self.limits.authenticated_by_address
            && state.unauthenticated.remove(&self.number).is_some()
        {
            state.authenticated.insert(self.number, self.from);
        }
    }

    /// Counts a rejected request. Closes the connection of an unauthenticated client with too many,
    /// because each request uses memory until its response is sent.
    pub fn reject(&self) {
        let before = self.rejected.fetch_add(1, Ordering::Relaxed);
        if before >= self.limits.rejected && self.is_unauthenticated() {
            self.close.cancel();
        }
    }

    fn is_unauthenticated(&self) -> bool {
        lock(&self.state).unauthenticated.contains_key(&self.number)
    }
}

/// A stream that ends early while its client is not authenticated.
#[derive(Debug)]
pub struct Connection<S> {
    stream: S,
    client: Arc<Client>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    deadline: Pin<Box<Sleep>>,
    is_watched: bool,
    /// Bytes that were read before the client was authenticated.
    received: usize,
}

impl<S> Connection<S> {
    /// Returns the client for the requests of the connection.
    pub fn client(&self) -> Arc<Client> {
        self.client.clone()
    }

    /// Returns an error if the connection must end.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if !self.is_watched {
            return Ok(());
        }
        if self.closed.as_mut().poll(context).is_ready() {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "closed in favor of newer connections",
            ));
        }
        if self.deadline.as_mut().poll(context).is_ready() {
            if self.client.is_unauthenticated() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.is_watched = false;
        }
        Ok(())
    }

    /// Returns true if nothing more may be read before the client is authenticated; that wakes the
    /// task of `context`.
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
        // Beyond the limit nothing is read before the client is authenticated.
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
        Pin::new(&mut self.stream).poll_write(context, bytes)
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

impl<S> Accept<TcpStream, S> for Connections {
    type Stream = Connection<TcpStream>;
    type Service = AddExtension<S, Arc<Client>>;
    type Future = Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        std::future::ready(stream.peer_addr().map(|peer| {
            let connection = self.admit(stream, peer.ip());
            let service = Extension(connection.client()).layer(service);
            (connection, service)
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const LIMITS: Limits = Limits {
        unauthenticated: 3,
        max_age: Duration::from_secs(5),
        received: 8,
        authenticated: 2,
        authenticated_by_address: 1,
        waiting: 2,
        rejected: 2,
    };

    struct Peer {
        connection: Connection<DuplexStream>,
        other: DuplexStream,
    }

    impl Peer {
        fn from(connections: &Connections, address: u8) -> Self {
            let (stream, other) = duplex(64);
            let address = Ipv4Addr::new(10, 0, 0, address);
            Self {
                connection: connections.admit(stream, address.into()),
                other,
            }
        }

        /// Returns true while reading waits for data.
        fn is_open(&mut self) -> bool {
            self.connection.read_u8().now_or_never().is_none()
        }
    }

    #[tokio::test]
    async fn additional_connection_closes_the_oldest_of_the_address_with_the_most() {
        let connections = Connections::new(LIMITS);
        let mut peers: Vec<_> = [1, 2, 2]
            .map(|address| Peer::from(&connections, address))
            .into();
        assert!(peers.iter_mut().all(Peer::is_open));
        peers.push(Peer::from(&connections, 2));
        peers.push(Peer::from(&connections, 3));
        let open: Vec<_> = peers.iter_mut().map(Peer::is_open).collect();
        assert_eq!(open, [true, false, false, true, true]);
    }

    #[tokio::test]
    async fn waiting_requests_are_limited_only_for_unauthenticated_clients() {
        let connections = Connections::new(LIMITS);
        let peer = Peer::from(&connections, 1);
        let client = peer.connection.client();
        let waiting = [client.wait(), client.wait()];
        assert!(waiting.iter().all(Option::is_some) && client.wait().is_none());
        // Requests of other connections are counted separately.
        let other = Peer::from(&connections, 1);
        assert!(other.connection.client().wait().is_some());
        drop(waiting);
        let waiting = [client.wait(), client.wait()];
        assert!(waiting.iter().all(Option::is_some));
        client.set_authenticated();
        assert!(client.wait().is_some());
    }

    #[tokio::test]
    async fn only_unauthenticated_connections_are_closed_for_their_rejected_requests() {
        let connections = Connections::new(LIMITS);
        let (mut unknown, mut known) = (Peer::from(&connections, 1), Peer::from(&connections, 2));
        known.connection.client().set_authenticated();
        for _ in 0..LIMITS.rejected {
            unknown.connection.client().reject();
            known.connection.client().reject();
        }
        assert!(unknown.is_open() && known.is_open());
        unknown.connection.client().reject();
        known.connection.client().reject();
        assert!(!unknown.is_open() && known.is_open());
    }

    #[tokio::test]
    async fn nothing_beyond_the_limit_is_read_before_the_client_is_authenticated() {
        let connections = Connections::new(LIMITS);
        let Peer {
            mut connection,
            mut other,
        } = Peer::from(&connections, 1);
        let client = connection.client();
        other.write_all(&[7; 60]).await.unwrap();
        let mut buffer = [0; 6];
        // The second read exceeds the limit.
        for _ in 0..2 {
            assert_eq!(connection.read_exact(&mut buffer).await.unwrap(), 6);
        }
        let reading = tokio::spawn(async move {
            let mut rest = [0; 48];
            connection.read_exact(&mut rest).await.map(|_| rest)
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!reading.is_finished());
        client.set_authenticated();
        assert_eq!(reading.await.unwrap().unwrap(), [7; 48]);
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_waits_for_authentication_is_closed_for_its_age() {
        let connections = Connections::new(LIMITS);
        let mut peer = Peer::from(&connections, 1);
        peer.other.write_all(&[7; 60]).await.unwrap();
        let mut all = Vec::new();
        let error = peer.connection.read_to_end(&mut all).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn ended_connections_are_not_counted() {
        let connections = Connections::new(LIMITS);
        let mut first = Peer::from(&connections, 1);
        for _ in 0..10 {
            let mut next = Peer::from(&connections, 1);
            assert!(next.is_open());
        }
        assert!(first.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn only_unauthenticated_connections_are_closed_for_their_age() {
        let connections = Connections::new(LIMITS);
        let mut authenticated = Peer::from(&connections, 1);
        let mut second = Peer::from(&connections, 1);
        let mut connection = Peer::from(&connections, 1);
        authenticated.connection.client().set_authenticated();
        // One more than the limit of authenticated clients of one address.
        second.connection.client().set_authenticated();
        let error = connection.connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(!second.is_open());
        assert!(authenticated.is_open());
        // Authenticated connections are not closed for new ones.
        let _others: Vec<_> = (0..9).map(|_| Peer::from(&connections, 1)).collect();
        assert!(authenticated.is_open());
        let is_authenticated = |peer: &Peer| {
            peer.connection.client().set_authenticated();
            !peer.connection.client.is_unauthenticated()
        };
        let third = Peer::from(&connections, 1);
        let (other, one_more) = (Peer::from(&connections, 2), Peer::from(&connections, 3));
        assert!(is_authenticated(&other));
        assert!(!is_authenticated(&one_more) && !is_authenticated(&third));
        drop(authenticated);
        assert!(is_authenticated(&third));
    }
}
