//! Limits of connections: their number for unauthenticated and authenticated clients, and requests
//! that wait for their authentication. `stream` limits age, received bytes and stalled writes;
//! `guard` authenticates clients.

mod stream;

use std::collections::{BTreeMap, HashMap};
use std::future::Ready;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::middleware::AddExtension;
use axum_server::accept::Accept;
use futures::task::AtomicWaker;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Layer as _;

pub use self::stream::Connection;

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
    /// Requests that wait for their authentication, by address and number of the connection. A
    /// closed connection counts until its requests are dropped.
    waiting: BTreeMap<(IpAddr, u64), usize>,
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
            rejected: AtomicU32::new(0),
            is_accepted: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            close: close.clone(),
        };
        Connection::new(stream, client, close)
    }
}

/// The client of one connection. Requests carry it as an extension.
#[derive(Debug)]
pub struct Client {
    number: u64,
    from: IpAddr,
    limits: Limits,
    state: Arc<Mutex<State>>,
    rejected: AtomicU32,
    /// A request had a valid path.
    is_accepted: AtomicBool,
    /// Waits for that.
    reader: AtomicWaker,
    close: CancellationToken,
}

/// A request that waits for its authentication, until this is dropped.
#[derive(Debug)]
pub struct Waiting(Arc<Client>);

impl Drop for Waiting {
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
        let limits = &self.limits;
        let mut state = lock(&self.state);
        let all: usize = state.waiting.values().sum();
        let of_address = (state.waiting).range((self.from, 0)..=(self.from, u64::MAX));
        let of_address: usize = of_address.map(|(_, count)| count).sum();
        let own = state.waiting.get(&(self.from, self.number));
        let own = own.copied().unwrap_or_default();
        if own >= limits.waiting
            || of_address >= limits.waiting_by_address
            || all >= limits.waiting_in_all
        {
            return None;
        }
        state.waiting.insert((self.from, self.number), own + 1);
        drop(state);
        Some(Waiting(self.clone()))
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
mod tests;
