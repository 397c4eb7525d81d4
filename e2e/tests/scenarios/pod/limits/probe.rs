//! Liveness probe that runs during an attack.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use e2e::Webhook;

/// Time between two requests.
const PROBE_INTERVAL: Duration = Duration::from_millis(25);
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// Polls `/livez` and the memory of the process until stopped.
pub(super) struct LivenessProbe {
    stop: mpsc::Sender<()>,
    observed: thread::JoinHandle<Observed>,
}

#[derive(Default)]
pub(super) struct Observed {
    /// Longest response time of `/livez`.
    pub(super) longest: Duration,
    /// Peak of the anonymous memory in KiB.
    pub(super) anonymous: u64,
}

impl LivenessProbe {
    /// Starts the probe on its own thread, because registries and clients of the test use the
    /// threads of the async runtime.
    pub(super) fn start(webhook: &Webhook) -> Self {
        let address = webhook.health_address();
        let (stop, stopped) = mpsc::channel();
        let pid = webhook.pid().unwrap();
        let observed = thread::spawn(move || {
            let mut observed = Observed::default();
            while stopped.recv_timeout(PROBE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let asked = Instant::now();
                // A connection error is treated like a missing response.
                let took = if is_alive(address) {
                    asked.elapsed()
                } else {
                    Duration::MAX
                };
                observed.longest = observed.longest.max(took);
                observed.anonymous = observed.anonymous.max(anonymous_kib(pid));
                if took == Duration::MAX {
                    break;
                }
            }
            observed
        });
        Self { stop, observed }
    }

    pub(super) async fn stop(self) -> Observed {
        self.stop.send(()).ok();
        let joined = tokio::task::spawn_blocking(move || self.observed.join());
        joined.await.unwrap().unwrap()
    }
}

/// Returns `true` if `/livez` at this address responds with 200 within 30 s.
fn is_alive(address: SocketAddr) -> bool {
    let response = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, PROBE_TIMEOUT)?;
        stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    response().is_ok_and(|response| response.starts_with("HTTP/1.1 200 "))
}

/// Returns the anonymous memory of a process in KiB; 0 after the process has ended.
pub(in crate::scenarios) fn anonymous_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok())
        .unwrap_or_default()
}
