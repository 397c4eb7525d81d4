use std::net::{Ipv4Addr, Ipv6Addr};

use futures::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

const LIMITS: Limits = Limits {
    unauthenticated: 3,
    min_age: Duration::from_secs(2),
    delayed: 1,
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
        Self::from_address(connections, Ipv4Addr::new(10, 0, 0, address).into())
    }

    fn from_address(connections: &Connections, address: IpAddr) -> Self {
        let (stream, other) = duplex(64);
        Self {
            connection: connections.admit(stream, address),
            other,
        }
    }

    /// Returns true if the connection is open: a read waits for data.
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
async fn client_with_many_addresses_of_a_network_closes_its_own_connections() {
    let connections = Connections::new(Limits {
        unauthenticated: 6,
        ..LIMITS
    });
    let from = |network: u16, host: u16| {
        let address = Ipv6Addr::new(0xfd00, 0, 0, network, 0, 0, 0, host);
        Peer::from_address(&connections, address.into())
    };
    let mut servers = [from(1, 1), from(1, 1)];
    let mut attacker: Vec<_> = (0..20).map(|host| from(2, host)).collect();
    assert!(servers.iter_mut().all(Peer::is_open));
    let open = attacker
        .iter_mut()
        .filter_map(|peer| peer.is_open().then_some(()));
    assert_eq!(open.count(), 4);
}

#[tokio::test]
async fn waiting_requests_are_limited_by_connection_by_address_and_in_all() {
    let connections = Connections::new(LIMITS);
    let peers = [1, 1, 2].map(|address| Peer::from(&connections, address));
    let [first, second, other] = peers.each_ref().map(|peer| peer.connection.client());
    // Authenticated clients can also send wrong paths.
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
    // The write is larger than the buffer of the stream.
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
    // Authenticated connections are not closed for new connections.
    let _others: Vec<_> = (0..9).map(|_| Peer::from(&connections, 1)).collect();
    assert!(authenticated.is_open());
}

#[tokio::test(start_paused = true)]
async fn additional_authenticated_connection_closes_the_one_idle_for_the_longest_time() {
    let connections = Connections::new(LIMITS);
    let mut peers = [1, 1, 2, 3].map(|address| Peer::from(&connections, address));
    let accept = |peer: &Peer| peer.connection.client().accept();
    drop(accept(&peers[0]));
    // The limit is one authenticated connection for each address. The first two peers have the same
    // address.
    let request = accept(&peers[1]);
    assert!(!peers[0].is_open() && peers[1].is_open());
    drop(accept(&peers[2]));
    // The limit is two authenticated connections. Now more connections are authenticated, and one
    // of them has a request.
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
    // Connections with accepted requests are also not closed for new connections.
    let _others: Vec<_> = (0..9).map(|_| Peer::from(&connections, 1)).collect();
    assert!(known.is_open() && above.is_open());
    drop(requests);
    let error = above.connection.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(known.is_open());
}

#[tokio::test(start_paused = true)]
async fn additional_connection_waits_until_the_oldest_of_its_address_is_old_enough() {
    let connections = Connections::new(LIMITS);
    let mut peers = [1; 3].map(|address| Peer::from(&connections, address));
    let admit = |address: u8| {
        let (stream, other) = duplex(64);
        let address = Ipv4Addr::new(10, 0, 0, address).into();
        let admitted = connections.admit_delayed(stream, address);
        async {
            Peer {
                connection: admitted.await,
                other,
            }
        }
    };
    let began = Instant::now();
    let first = admit(1).await;
    assert_eq!(began.elapsed(), LIMITS.min_age);
    // The first request of the connection has waited as long as the connection.
    let client = first.connection.client();
    assert_eq!(client.request_start(), began);
    tokio::time::sleep(FIRST_REQUESTS).await;
    assert_eq!(client.request_start(), Instant::now());
    assert!(!peers[0].is_open() && peers[1].is_open());
    // A connection from another address does not wait. This connection closes a connection of the
    // address with the most connections.
    let _other = admit(2).now_or_never().unwrap();
    assert!(!peers[1].is_open() && peers[2].is_open());
    drop((first, peers));
    let (mut second, third) = (admit(1).await, admit(1).await);
    let mut fourth = std::pin::pin!(admit(1));
    assert!(fourth.as_mut().now_or_never().is_none());
    let mut fifth = std::pin::pin!(admit(1));
    assert!(fifth.as_mut().now_or_never().is_none());
    // Only one connection can wait, so the wait of the fourth connection ends.
    let _fourth = fourth.now_or_never().unwrap();
    assert!(!second.is_open());
    drop(third);
    assert!(fifth.now_or_never().is_some(), "a place is free");
}

#[tokio::test(start_paused = true)]
async fn waiting_connections_are_divided_by_address() {
    let connections = Connections::new(Limits {
        delayed: 2,
        ..LIMITS
    });
    let _peers = [2, 1, 1].map(|address| Peer::from(&connections, address));
    let admit = |address: u8| {
        let from = Ipv4Addr::new(10, 0, 0, address).into();
        connections.admit_delayed(duplex(64).0, from)
    };
    let mut first = std::pin::pin!(admit(1));
    let mut second = std::pin::pin!(admit(1));
    let mut other = std::pin::pin!(admit(2));
    for waiting in [&mut first, &mut second, &mut other] {
        assert!(waiting.as_mut().now_or_never().is_none());
    }
    let _first = first.now_or_never().unwrap();
    assert!(second.now_or_never().is_none() && other.now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn each_ended_connection_lets_a_waiting_one_be_served_at_once() {
    let connections = Connections::new(Limits {
        delayed: 2,
        ..LIMITS
    });
    let [first, second, _third] = [1; 3].map(|address| Peer::from(&connections, address));
    let admit = || connections.admit_delayed(duplex(64).0, Ipv4Addr::new(10, 0, 0, 1).into());
    let mut waiting = [Box::pin(admit()), Box::pin(admit())];
    for waiting in &mut waiting {
        assert!(waiting.as_mut().now_or_never().is_none());
    }
    drop((first, second));
    let served = waiting.map(|waiting| waiting.now_or_never().unwrap());
    assert_eq!(served.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn age_of_a_connection_above_the_limit_begins_with_its_last_response() {
    let connections = Connections::new(LIMITS);
    let known = Peer::from(&connections, 1);
    let mut above = Peer::from(&connections, 1);
    let _request = known.connection.client().accept();
    let began = Instant::now();
    let request = above.connection.client().accept();
    let accepted = Duration::from_secs(4);
    tokio::time::sleep(accepted).await;
    drop(request);
    let error = above.connection.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!(began.elapsed(), accepted + LIMITS.max_age);
}

#[tokio::test(start_paused = true)]
async fn connection_waits_at_most_the_minimum_age_although_others_are_served_first() {
    let connections = Connections::new(LIMITS);
    let _peers = [1; 3].map(|address| Peer::from(&connections, address));
    let (stream, _other) = duplex(64);
    let from = Ipv4Addr::new(10, 0, 0, 1).into();
    let began = Instant::now();
    let waiting = connections.admit_delayed(stream, from);
    let younger = async {
        loop {
            tokio::time::sleep(LIMITS.min_age / 4).await;
            drop([1; 3].map(|address| Peer::from(&connections, address)));
            let _others = [1; 3].map(|address| Peer::from(&connections, address));
            tokio::time::sleep(LIMITS.min_age / 4).await;
        }
    };
    tokio::select! {
        _admitted = waiting => {}
        () = younger => {}
    }
    assert!(began.elapsed() <= LIMITS.min_age);
}
