//! Free ports on loopback.
//! Who listens on them is not here.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

/// Below the range that Linux takes for outgoing connections (32768 and up), so that no client grabs a port between our look and the server's bind.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// A port that nobody listens on now and that this process has not handed out before.
pub(crate) fn free() -> Result<u16> {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let given = given.get_or_insert_default();
    // Chosen at random, so that two processes that look at the same moment hardly ever choose the same.
    for _ in 0..1_000 {
        let port = rand::random_range(RANGE);
        if !given.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            given.insert(port);
            return Ok(port);
        }
    }
    bail!(
        "no free port on 127.0.0.1 between {} and {}",
        RANGE.start,
        RANGE.end
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: HashSet<_> = (0..50).map(|_| free().unwrap()).collect();
        assert_eq!(ports.len(), 50);
    }
}
