//! Limits of connections: their number for unauthenticated and authenticated clients, and the
//! number of requests that wait for their authentication. The module `stream` limits age, received
//! bytes and stalled writes. The module `guard` authenticates clients.

mod delayed;
mod networks;
mod stream;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::middleware::AddExtension;
use axum_server::accept::Accept;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tower::Layer as _;

use self::delayed::{DelayedConnections, DelayedPlace};
pub(crate) use self::networks::BusiestAddresses;
pub use self::stream::Connection;

/// Time after the start of a connection in which its requests count as the requests for which the
/// connection was opened.
const FIRST_REQUESTS: Duration = Duration::from_secs(1);

/// The connections of one listener. Clones share the connections.
#[derive(Debug, Clone)]
pub struct Connections {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

/// The limits for the connections of a listener.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of unauthenticated connections that have no accepted request. An additional
    /// connection closes one of these connections. In the network with the most of these
    /// connections, this is the oldest connection of the address with the most of them.
    pub unauthenticated: usize,
    /// Minimum age of a connection that is closed for a new connection of the same address. The
    /// minimum is necessary because an API server opens many connections at the same time. A new
    /// connection waits until the oldest connection has this age, so it waits for at most this
    /// time.
    pub min_age: Duration,
    /// Maximum number of connections that wait because of [`Limits::min_age`] at the same time, at
    /// least one. If an additional connection must wait, the wait of another connection ends. In
    /// the network with the most waiting connections, this is the oldest connection of the address
    /// with the most waiting connections.
    pub delayed: usize,
    /// Maximum age of an unauthenticated connection.
    pub max_age: Duration,
    /// Maximum time for which a write can wait for the client to receive data.
    pub max_stall: Duration,
    /// Maximum number of bytes, including TLS, that are read from a connection before one of its
    /// requests has a valid path. One read may exceed this number.
    pub received: usize,
    /// Maximum number of authenticated connections at the same time. An additional connection
    /// closes the connection that has been idle for the longest time. If the address of the
    /// additional connection has too many connections, a connection of this address is closed. If
    /// all connections have requests in progress, no connection is closed. In this case the
    /// additional connection is served, but counts as unauthenticated after its requests.
    pub authenticated: usize,
    /// Maximum number of authenticated connections of one address at the same time.
    pub authenticated_by_address: usize,
    /// Maximum number of requests of one connection that wait for their authentication at the same
    /// time.
    pub waiting: usize,
    /// Maximum number of requests of all connections that wait for their authentication.
    pub waiting_in_all: usize,
    /// Maximum number of requests of one address that wait for their authentication.
    pub waiting_by_address: usize,
    /// Number of rejected requests in a row after which the next rejected request closes the
    /// connection.
    pub rejected: u32,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    unauthenticated: BTreeMap<u64, OpenConnection>,
    authenticated: BTreeMap<u64, OpenConnection>,
    /// Number of requests that wait for their authentication, by address and number of the
    /// connection. A closed connection counts until its requests are dropped.
    waiting: BTreeMap<(IpAddr, u64), usize>,
    delayed: DelayedConnections,
}

#[derive(Debug)]
struct OpenConnection {
    from: IpAddr,
    close: CancellationToken,
    /// Number of accepted requests that have no response yet.
    requests: usize,
    /// Time of the last response to an accepted request, or of the start of the connection.
    idle_since: Instant,
}

impl State {
    /// Returns the connection to close for a further connection from this address. Returns `None`
    /// if the limit is not reached. Selects the network with the most unauthenticated connections,
    /// and in this network the address with the most of them. If several addresses have the same
    /// number, all of them are included. The result is the connection of these addresses that has
    /// had no accepted request for the longest time.
    fn replaceable(&self, from: IpAddr, limits: &Limits) -> Option<(u64, &OpenConnection)> {
        let idle = || (self.unauthenticated.iter()).filter(|(_, it)| it.requests == 0);
        if idle().count() < limits.unauthenticated {
            return None;
        }
        let clients = idle().map(|(_, it)| it.from).chain([from]);
        let busiest = BusiestAddresses::of(clients);
        let of_most = idle().filter(|(_, it)| busiest.contains(it.from));
        let (number, connection) = of_most.min_by_key(|(_, it)| it.idle_since)?;
        Some((*number, connection))
    }

    /// Returns the time at which a further connection from this address can be served. Returns
    /// `None` if it can be served now.
    fn delay(&self, from: IpAddr, limits: &Limits) -> Option<Instant> {
        let (_, oldest) = self.replaceable(from, limits)?;
        let until = oldest.idle_since + limits.min_age;
        (oldest.from == from && until > Instant::now()).then_some(until)
    }

    /// Marks an unauthenticated connection as authenticated. Returns the connection that must be
    /// closed because of the limit. Returns `None` if no limit is reached, or if the connection is
    /// already authenticated. Also returns `None` if all connections have requests in progress: in
    /// this case the connection stays unauthenticated.
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
    // No code panics while it holds the lock, so the state is valid.
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

    /// Adds a connection from this address. The connection is unauthenticated.
    pub fn admit<S>(&self, stream: S, from: IpAddr) -> Connection<S> {
        // An IPv4 address and its IPv4-mapped IPv6 address count as the same address.
        let from = from.to_canonical();
        self.add(&mut lock(&self.state), stream, from, Instant::now())
    }

    /// Adds a connection from this address as soon as the limits allow this without closing a
    /// connection that is younger than [`Limits::min_age`]. The connection waits at most
    /// [`Limits::min_age`], and ends its wait early if too many other connections wait.
    async fn admit_delayed<S>(&self, stream: S, from: IpAddr) -> Connection<S> {
        let from = from.to_canonical();
        let arrived = Instant::now();
        let (mut stream, mut until) = match self.try_admit(stream, from, arrived) {
            Ok(connection) => return connection,
            Err(delayed) => delayed,
        };
        let place = DelayedPlace::new(&self.state, from, self.limits.delayed);
        // Other connections can be served before this connection, so the total wait is limited.
        let latest = arrived + self.limits.min_age;
        let admit = |stream| self.add(&mut lock(&self.state), stream, from, arrived);
        loop {
            // If no notification arrives, the wait ends when another connection is old enough to be
            // closed.
            tokio::select! {
                _elapsed = timeout_at(until.min(latest), place.freed.notified()) => {}
                () = place.ended.cancelled() => return admit(stream),
            }
            if latest <= Instant::now() {
                return admit(stream);
            }
            (stream, until) = match self.try_admit(stream, from, arrived) {
                Ok(connection) => return connection,
                Err(delayed) => delayed,
            };
        }
    }

    /// Adds a connection if the limits allow this without closing a connection that is younger than
    /// [`Limits::min_age`]. Otherwise returns the stream of the new connection, and the time of the
    /// next attempt.
    fn try_admit<S>(
        &self,
        stream: S,
        from: IpAddr,
        arrived: Instant,
    ) -> Result<Connection<S>, (S, Instant)> {
        let mut state = lock(&self.state);
        match state.delay(from, &self.limits) {
            Some(until) => Err((stream, until)),
            None => Ok(self.add(&mut state, stream, from, arrived)),
        }
    }

    fn add<S>(
        &self,
        state: &mut State,
        stream: S,
        from: IpAddr,
        arrived: Instant,
    ) -> Connection<S> {
        let close = CancellationToken::new();
        let replaced = state.replaceable(from, &self.limits);
        let replaced = replaced.map(|(number, _)| number);
        if let Some(replaced) = replaced.and_then(|number| state.unauthenticated.remove(&number)) {
            replaced.close.cancel();
        }
        let number = state.next;
        state.next += 1;
        let admitted = Instant::now();
        let connection = OpenConnection {
            from,
            close: close.clone(),
            requests: 0,
            idle_since: admitted,
        };
        state.unauthenticated.insert(number, connection);
        let client = Client {
            number,
            from,
            arrived,
            admitted,
            limits: self.limits,
            state: self.state.clone(),
            rejected: AtomicU32::new(0),
            is_accepted: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            close: close.clone(),
        };
        Connection::new(stream, client, close)
    }
}

/// The client of one connection. Each request contains it as an extension.
#[derive(Debug)]
pub struct Client {
    number: u64,
    from: IpAddr,
    /// Time at which the connection arrived.
    arrived: Instant,
    /// Time at which the connection was first served.
    admitted: Instant,
    limits: Limits,
    state: Arc<Mutex<State>>,
    rejected: AtomicU32,
    /// True after a request had a valid path.
    is_accepted: AtomicBool,
    /// Task that reads from the connection and waits for a request with a valid path.
    reader: AtomicWaker,
    close: CancellationToken,
}

/// A request that waits for its authentication. The wait ends when this value is dropped.
#[derive(Debug)]
pub struct WaitingRequest(Arc<Client>);

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        let connection = (self.0.from, self.0.number);
        let mut state = lock(&self.0.state);
        if let Some(count) = state.waiting.get_mut(&connection) {
            *count -= 1;
            if *count == 0 {
                state.waiting.remove(&connection);
            }
        }
    }
}

/// An accepted request. It ends when this value is dropped.
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
    /// Returns the address of the client. For an IPv4-mapped IPv6 address, returns the IPv4
    /// address.
    pub fn address(&self) -> IpAddr {
        self.from
    }

    /// Returns the time at which the deadline of a request begins whose head arrives now. The first
    /// requests of a connection may have waited as long as the connection.
    pub fn request_start(&self) -> Instant {
        let now = Instant::now();
        let is_first = now.saturating_duration_since(self.admitted) < FIRST_REQUESTS;
        if is_first { self.arrived } else { now }
    }

    /// Counts a request that waits for its authentication. Returns `None` if too many requests
    /// already wait. In this case the request must be rejected.
    pub fn wait(self: &Arc<Self>) -> Option<WaitingRequest> {
        let limits = &self.limits;
        let mut state = lock(&self.state);
        let all: usize = state.waiting.values().sum();
        let of_address = (state.waiting).range((self.from, 0)..=(self.from, u64::MAX));
        let of_address: usize = of_address.map(|(_, count)| count).sum();
        let of_connection = state.waiting.get(&(self.from, self.number));
        let of_connection = of_connection.copied().unwrap_or_default();
        if of_connection >= limits.waiting
            || of_address >= limits.waiting_by_address
            || all >= limits.waiting_in_all
        {
            return None;
        }
        let connection = (self.from, self.number);
        state.waiting.insert(connection, of_connection + 1);
        drop(state);
        Some(WaitingRequest(self.clone()))
    }

    /// Accepts a request with a valid path. While the request is in progress, the connection is not
    /// closed because of its age or for other connections. Further bytes of the connection are
    /// read.
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
        state.delayed.wake();
        drop(state);
        if let Some(connection) = closed {
            connection.close.cancel();
        }
        AcceptedRequest(self.clone())
    }

    /// Counts a rejected request. Closes the connection after too many rejected requests in a row.
    pub fn reject(&self) {
        let before = self.rejected.fetch_add(1, Ordering::Relaxed);
        if before >= self.limits.rejected {
            self.close.cancel();
        }
    }

    /// Closes the connection, even if its client is authenticated.
    pub fn close(&self) {
        self.close.cancel();
    }

    /// Returns the time from which the connection can be closed because of its age. Returns `None`
    /// while the connection cannot be closed because of its age.
    fn expires_at(&self) -> Option<Instant> {
        let state = lock(&self.state);
        let connection = state.unauthenticated.get(&self.number);
        let idle = connection.filter(|connection| connection.requests == 0)?;
        Some(idle.idle_since + self.limits.max_age)
    }

    fn is_authenticated(&self) -> bool {
        lock(&self.state).authenticated.contains_key(&self.number)
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for Connections {
    type Stream = Connection<TcpStream>;
    type Service = AddExtension<S, Arc<Client>>;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let connections = self.clone();
        async move {
            let peer = stream.peer_addr()?;
            let connection = connections.admit_delayed(stream, peer.ip()).await;
            let service = Extension(connection.client()).layer(service);
            Ok((connection, service))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
