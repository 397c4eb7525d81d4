//! Connections that wait because too many connections are open.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::networks::BusiestAddresses;
use super::{State, lock};

/// The waiting connections. If too many connections wait, the wait of one connection ends. In the
/// network with the most waiting connections, this is the oldest connection of the address with the
/// most waiting connections.
#[derive(Debug, Default)]
pub(super) struct DelayedConnections {
    next: u64,
    /// The waiting connections by number. The oldest connection has the lowest number.
    places: BTreeMap<u64, DelayedConnection>,
}

#[derive(Debug)]
struct DelayedConnection {
    from: IpAddr,
    /// Notified when a connection may be served.
    freed: Arc<Notify>,
    /// Cancelled when this connection must not wait any longer.
    ended: CancellationToken,
}

impl DelayedConnections {
    /// Notifies the oldest waiting connection of each address, because all connections of one
    /// address wait for the same condition.
    pub(super) fn wake(&self) {
        let mut addresses = BTreeSet::new();
        for place in self.places.values() {
            if addresses.insert(place.from) {
                place.freed.notify_one();
            }
        }
    }

    /// Removes a waiting connection. Notifies the next connection of the same address, because two
    /// connections may have ended since the last notification.
    fn remove(&mut self, number: u64) {
        let Some(removed) = self.places.remove(&number) else {
            return;
        };
        let mut of_address = self.places.values().filter(|it| it.from == removed.from);
        if let Some(next) = of_address.next() {
            next.freed.notify_one();
        }
    }

    /// Ends the wait of one connection. In the network with the most waiting connections, this is
    /// the oldest connection of the address with the most waiting connections. An additional
    /// connection from the address `from` is also counted.
    fn end_one(&mut self, from: IpAddr) {
        let clients = self.places.values().map(|it| it.from).chain([from]);
        let busiest = BusiestAddresses::of(clients);
        let oldest = (self.places.iter()).find(|(_, it)| busiest.contains(it.from));
        let oldest = oldest.map(|(number, _)| *number);
        if let Some(oldest) = oldest.and_then(|number| self.places.remove(&number)) {
            oldest.ended.cancel();
        }
    }
}

/// The place of a waiting connection. The wait ends when this value is dropped.
#[derive(Debug)]
pub(super) struct DelayedPlace {
    number: u64,
    state: Arc<Mutex<State>>,
    /// Notified when the connection may be served.
    pub(super) freed: Arc<Notify>,
    /// Cancelled when the connection must not wait any longer.
    pub(super) ended: CancellationToken,
}

impl DelayedPlace {
    /// Adds a waiting connection from this address. At most `limit` connections of all addresses
    /// can wait.
    pub(super) fn new(state: &Arc<Mutex<State>>, from: IpAddr, limit: usize) -> Self {
        let (freed, ended) = (Arc::new(Notify::new()), CancellationToken::new());
        let mut locked = lock(state);
        let delayed = &mut locked.delayed;
        if delayed.places.len() >= limit {
            delayed.end_one(from);
        }
        let number = delayed.next;
        delayed.next += 1;
        let place = DelayedConnection {
            from,
            freed: freed.clone(),
            ended: ended.clone(),
        };
        delayed.places.insert(number, place);
        drop(locked);
        Self {
            number,
            state: state.clone(),
            freed,
            ended,
        }
    }
}

impl Drop for DelayedPlace {
    fn drop(&mut self) {
        lock(&self.state).delayed.remove(self.number);
    }
}
