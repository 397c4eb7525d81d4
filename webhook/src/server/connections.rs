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
use tokio::time::{Instant, Sleep, sleep};
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
    /// Maximum time of a write that the client does not receive.
    pub max_stall: Duration,
    /// Received bytes, including those of TLS, after which nothing more is read before a request of
    /// the connection has a valid path. Exceeded by at most one read.
    pub received: usize,
    /// Authenticated connections at the same time. An additional one closes the one without
    /// requests for the longest time, of the same address if that has too many. If all have
    /// requests, the additional one is served, and counts as unauthenticated after its requests.
    pub authenticated: usize,
    /// Authenticated connections of one address at the same time.
    pub authenticated_by_address: usize,
    /// Requests of one connection that can wait for their authentication at the same time.
    pub waiting: usize,
    /// Such requests of all connections.
    pub waiting_in_all: usize,
    /// Such requests of one address.
    pub waiting_by_address: usize,
    /// Rejected requests in a row after which the next one closes the connection.
    pub rejected: u32,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Ordered by number, so the oldest comes first.
    unauthenticated: BTreeMap<u64, OpenConnection>,
    authenticated: BTreeMap<u64, OpenConnection>,
    /// Requests that wait for their authentication, by address.
    waiting: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct OpenConnection {
    from: IpAddr,
    close: CancellationToken,
    /// Accepted requests without a response.
    requests: usize,
    /// Time of the last such response, or of the start of the connection.
    idle_since: Instant,
}

impl State {
    /// Removes the oldest unauthenticated connection without accepted requests, of the address with
    /// the most of them. Of several such addresses, the one with the oldest connection.
    fn evict(&mut self) -> Option<OpenConnection> {
        let idle = || (self.unauthenticated.iter()).filter(|(_, it)| it.requests == 0);
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (_, connection) in idle() {
            *counts.entry(connection.from).or_default() += 1;
        }
        let most = counts.values().max()?;
        let (number, _) = idle().find(|(_, it)| counts.get(&it.from) == Some(most))?;
        let number = *number;
        self.unauthenticated.remove(&number)
    }

    /// Makes an unauthenticated connection an authenticated one. Returns a connection to close for
    /// it.
    fn authenticate(&mut self, number: u64, limits: &Limits) -> Option<OpenConnection> {
        let from = self.unauthenticated.get(&number)?.from;
        let same = |connection: &OpenConnection| connection.from == from;
        let count = self.authenticated.values().filter(|it| same(it)).count();
        let mut closed = None;
        let is_address_full = count >= limits.authenticated_by_address;
        if is_address_full || self.authenticated.len() >= limits.authenticated {
            let idle = (self.authenticated.iter())
                .filter(|(_, it)| it.requests == 0 && (!is_address_full || same(it)));
            let (idle, _) = idle.min_by_key(|(_, it)| it.idle_since)?;
            let idle = *idle;
            closed = self.authenticated.remove(&idle);
        }
        let connection = self.unauthenticated.remove(&number)?;
        self.authenticated.insert(number, connection);
        closed
    }

    fn connection(&mut self, number: u64) -> Option<&mut OpenConnection> {
        let known = self.authenticated.get_mut(&number);
        known.or_else(|| self.unauthenticated.get_mut(&number))
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
        let connection = OpenConnection {
            from,
            close: close.clone(),
            requests: 0,
            idle_since: Instant::now(),
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
            stalled: None,
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

/// A request that waits for its authentication, until this is dropped.
#[derive(Debug)]
pub struct Waiting {
    client: Arc<Client>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = lock(&self.client.state);
        if let Some(count) = state.waiting.get_mut(&self.client.from) {
            *count -= 1;
            if *count == 0 {
                state.waiting.remove(&self.client.from);
            }
        }
    }
}

/// An accepted request, until this is dropped.
#[derive(Debug)]
pub struct AcceptedRequest(Arc<Client>);

impl Drop for AcceptedRequest {
    fn drop(&mut self) {
        if let Some(connection) = lock(&self.0.state).connection(self.0.number) {
            connection.requests -= 1;
            connection.idle_since = Instant::now();
        }
    }
}

impl Client {
    /// Returns the address of the client; of an IPv4-mapped IPv6 address, the IPv4 address.
    pub fn address(&self) -> IpAddr {
        self.from
    }

    /// Lets a request wait for its authentication. Returns `None` if too many requests wait
    /// already; the request must be rejected then.
    pub fn wait(self: &Arc<Self>) -> Option<Waiting> {
        let place = self.waiting.clone().try_acquire_owned().ok()?;
        let mut state = lock(&self.state);
        let all: usize = state.waiting.values().sum();
        let same = state.waiting.get(&self.from).copied().unwrap_or_default();
        if all >= self.limits.waiting_in_all || same >= self.limits.waiting_by_address {
            return None;
        }
        state.waiting.insert(self.from, same + 1);
        drop(state);
        Some(Waiting {
            client: self.clone(),
            _place: place,
        })
    }

    /// Accepts a request with a valid path. The connection is then no longer closed because of its
    /// age or of unauthenticated ones, and reading continues.
    pub fn accept(self: &Arc<Self>) -> AcceptedRequest {
        if !self.is_accepted.swap(true, Ordering::AcqRel) {
            self.reader.wake();
        }
        self.rejected.store(0, Ordering::Relaxed);
        let mut state = lock(&self.state);
        if let Some(connection) = state.connection(self.number) {
            connection.requests += 1;
        }
        let closed = state.authenticate(self.number, &self.limits);
        drop(state);
        if let Some(connection) = closed {
            connection.close.cancel();
        }
        AcceptedRequest(self.clone())
    }

    /// Counts a rejected request. Closes a connection with too many in a row.
    pub fn reject(&self) {
        let before = self.rejected.fetch_add(1, Ordering::Relaxed);
        if before >= self.limits.rejected {
            self.close.cancel();
        }
    }

    /// Closes the connection, also that of an authenticated client.
    pub fn close(&self) {
        self.close.cancel();
    }

    /// Returns true if the connection can be closed because of its age.
    fn can_expire(&self) -> bool {
        let state = lock(&self.state);
        let connection = state.unauthenticated.get(&self.number);
        connection.is_some_and(|connection| connection.requests == 0)
    }

    fn is_authenticated(&self) -> bool {
        lock(&self.state).authenticated.contains_key(&self.number)
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
    /// Ends the time for a write that the client does not receive.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Connection<S> {
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
            if self.client.can_expire() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if self.client.is_authenticated() {
                self.is_watched = false;
            } else {
                let again = Instant::now() + self.client.limits.max_age;
                self.deadline.as_mut().reset(again);
                // Registers the task for the new time.
                let _pending = self.deadline.as_mut().poll(context);
            }
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
        max_stall: Duration::from_secs(7),
        received: 8,
        authenticated: 2,
        authenticated_by_address: 1,
        waiting: 2,
        waiting_in_all: 4,
        waiting_by_address: 3,
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
    async fn waiting_requests_are_limited_by_connection_by_address_and_in_all() {
        let connections = Connections::new(LIMITS);
        let peers = [1, 1, 2].map(|address| Peer::from(&connections, address));
        let [first, second, other] = peers.each_ref().map(|peer| peer.connection.client());
        // Authenticated clients can send wrong paths as well.
        let _accepted = first.accept();
        let mut waiting = vec![first.wait().unwrap(), first.wait().unwrap()];
        assert!(first.wait().is_none());
        waiting.push(second.wait().unwrap());
        assert!(second.wait().is_none(), "three of the address wait");
        waiting.push(other.wait().unwrap());
        assert!(other.wait().is_none(), "four wait in all");
        drop(waiting);
        assert!(lock(&connections.state).waiting.is_empty());
        assert!(first.wait().is_some());
    }

    #[tokio::test]
    async fn too_many_rejected_requests_in_a_row_close_each_connection() {
        let connections = Connections::new(LIMITS);
        let (mut unknown, mut known) = (Peer::from(&connections, 1), Peer::from(&connections, 2));
        let _accepted = known.connection.client().accept();
        for _ in 0..LIMITS.rejected {
            unknown.connection.client().reject();
            known.connection.client().reject();
        }
        assert!(unknown.is_open() && known.is_open());
        drop(known.connection.client().accept());
        unknown.connection.client().reject();
        known.connection.client().reject();
        assert!(!unknown.is_open() && known.is_open());
        for _ in 0..LIMITS.rejected {
            known.connection.client().reject();
        }
        assert!(!known.is_open());
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
        let _accepted = client.accept();
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

    #[tokio::test(start_paused = true)]
    async fn write_that_the_client_does_not_receive_closes_an_authenticated_connection() {
        let connections = Connections::new(LIMITS);
        let mut peer = Peer::from(&connections, 1);
        let _accepted = peer.connection.client().accept();
        let began = tokio::time::Instant::now();
        // More than the buffer of the stream.
        let error = peer.connection.write_all(&[7; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), LIMITS.max_stall);
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
        let mut connection = Peer::from(&connections, 1);
        drop(authenticated.connection.client().accept());
        let error = connection.connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(authenticated.is_open());
        // Authenticated connections are not closed for new ones.
        let _others: Vec<_> = (0..9).map(|_| Peer::from(&connections, 1)).collect();
        assert!(authenticated.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn additional_authenticated_connection_closes_the_one_idle_for_the_longest_time() {
        let connections = Connections::new(LIMITS);
        let mut peers = [1, 1, 2, 3].map(|address| Peer::from(&connections, address));
        let accept = |peer: &Peer| peer.connection.client().accept();
        drop(accept(&peers[0]));
        // More than one of the address.
        let request = accept(&peers[1]);
        assert!(!peers[0].is_open() && peers[1].is_open());
        drop(accept(&peers[2]));
        // More than two in all, and one has a request.
        drop(accept(&peers[3]));
        assert!(peers[1].is_open() && !peers[2].is_open() && peers[3].is_open());
        drop(request);
    }

    #[tokio::test(start_paused = true)]
    async fn connection_above_the_limit_stays_open_while_it_has_an_accepted_request() {
        let connections = Connections::new(LIMITS);
        let mut known = Peer::from(&connections, 1);
        let mut above = Peer::from(&connections, 1);
        let accept = |peer: &Peer| peer.connection.client().accept();
        let requests = (accept(&known), accept(&above));
        let waited = tokio::time::timeout(LIMITS.max_age * 3, above.connection.read_u8()).await;
        assert!(waited.is_err(), "{waited:?}");
        // Nor for new connections.
        let _others: Vec<_> = (0..9).map(|_| Peer::from(&connections, 1)).collect();
        assert!(known.is_open() && above.is_open());
        drop(requests);
        let error = above.connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(known.is_open());
    }
}
