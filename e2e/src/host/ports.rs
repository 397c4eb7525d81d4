//! Reservation of free ports on loopback.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

/// Ports below Linux' range for outgoing connections (32768 and up), so that no outgoing connection
/// uses a port before the server binds the port.
const RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Reserves a free port: no listener uses the port, and no running process has reserved the port.
pub(crate) fn free() -> Result<u16> {
    static CLAIMS: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let folder = folder();
    fs_err::create_dir_all(&folder)?;
    for _ in 0..1_000 {
        let port = rand::random_range(RANGE);
        let claim = fs_err::File::create(folder.join(port.to_string()))?.into_file();
        // The kernel releases the lock when this process ends. A lock belongs to an open file, so
        // the lock also prevents a second reservation of the port in this process.
        if claim.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            CLAIMS
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(claim);
            return Ok(port);
        }
    }
    bail!(
        "no free port on 127.0.0.1 between {} and {}",
        RANGE.start,
        RANGE.end
    )
}

/// Returns the folder in which processes of one user reserve ports, each with an empty, locked
/// file.
fn folder() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("kubectl-bundle-ports-{user}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn never_reserves_a_port_twice() {
        let ports: HashSet<_> = (0..50).map(|_| free().unwrap()).collect();
        assert_eq!(ports.len(), 50);
    }

    #[test]
    fn reserved_port_is_locked_for_other_processes() {
        let port = free().unwrap();
        let file = fs_err::File::create(folder().join(port.to_string())).unwrap();
        assert!(file.into_file().try_lock().is_err());
    }
}
