//! Limits the threads of DNS lookups for each requester. The resolver of the operating system
//! blocks a thread until DNS servers respond or its own timeout passes, even after the request was
//! cancelled.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use bundle_oci::registry::{HostAddresses, LookupLimit, NameResolver};
use futures::future::{BoxFuture, FutureExt as _};

use crate::budget::{Budget, Pool};

/// Number of threads for all DNS lookups.
const THREADS: u64 = 32;
/// Number of equal parts of the threads. Each requester can use one part for its reconciles, and
/// one part for its reviews from each client address.
const PARTS: u64 = 4;
/// Maximum time that a lookup waits for a thread. This time is shorter than the deadline of a
/// connection (5 s), so that the error names the limit as the cause.
const MAX_WAIT: Duration = Duration::from_secs(3);

tokio::task_local! {
    static REQUESTER: (String, Option<IpAddr>);
}

/// Runs `work` of the reconciler. Its DNS lookups count towards the limit of `requester`.
pub fn for_requester<T>(requester: &str, work: impl Future<Output = T>) -> impl Future<Output = T> {
    for_review(requester, None, work)
}

/// Runs `work` of a review that the client with address `client` has sent. Its DNS lookups count
/// towards the limits of `requester` at this address, and of the address. The client sends the name
/// of the requester.
pub fn for_review<T>(
    requester: &str,
    client: Option<IpAddr>,
    work: impl Future<Output = T>,
) -> impl Future<Output = T> {
    REQUESTER.scope((requester.to_owned(), client), Box::pin(work))
}

type Lookup = dyn Fn(&str) -> HostAddresses + Send + Sync;

/// A resolver with a limited number of threads. A lookup that gets no thread in time fails with
/// [`LookupLimit`].
#[derive(Clone)]
pub struct LimitedResolver {
    threads: Pool,
    max_wait: Duration,
    lookup: Arc<Lookup>,
}

impl fmt::Debug for LimitedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = &self.threads;
        let resolver = &mut f.debug_struct("LimitedResolver");
        resolver.field("threads", threads).finish_non_exhaustive()
    }
}

impl Default for LimitedResolver {
    fn default() -> Self {
        Self::new(|host| Ok((host, 0).to_socket_addrs()?.collect()))
    }
}

impl LimitedResolver {
    /// Creates a resolver. `lookup` may block the thread that it runs on.
    pub(crate) fn new(lookup: impl Fn(&str) -> HostAddresses + Send + Sync + 'static) -> Self {
        Self {
            threads: Pool::new(THREADS),
            max_wait: MAX_WAIT,
            lookup: Arc::new(lookup),
        }
    }
}

impl NameResolver for LimitedResolver {
    fn resolve(&self, host: &str) -> BoxFuture<'static, HostAddresses> {
        let (requester, client) = REQUESTER.try_with(Clone::clone).unwrap_or_default();
        let (resolver, host) = (self.clone(), host.to_owned());
        async move {
            let Self {
                threads,
                max_wait,
                lookup,
            } = resolver;
            let caps = Budget::part_at_origin(&threads, &requester, client, PARTS);
            let share = tokio::time::timeout(max_wait, threads.take(1, caps))
                .await
                .map_err(|_| io::Error::other(LookupLimit))?
                .map_err(io::Error::other)?;
            let thread = tokio::task::spawn_blocking(move || {
                let found = lookup(&host);
                // The share is released only here, when the lookup has ended, even if no caller
                // waits for the result any more.
                drop(share);
                found
            });
            thread.await.map_err(io::Error::other)?
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{self, Receiver};
    use std::time::Duration;

    use bundle_core::reference::{Digest, Reference};
    use futures::future::join_all;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;
    use crate::clients::registries::Registries;

    const LONG: Duration = Duration::from_secs(30);

    /// Returns a resolver that finds no host. Lookups of names below `stalled.example` wait until
    /// the sender of `gate` is dropped. The resolver adds the names of started lookups to
    /// `started`.
    fn resolver(gate: Receiver<()>, started: &Arc<Mutex<Vec<String>>>) -> LimitedResolver {
        let (gate, started) = (Mutex::new(gate), started.clone());
        LimitedResolver::new(move |host| {
            started.lock().unwrap().push(host.to_owned());
            if host.ends_with(".stalled.example") {
                gate.lock().unwrap().recv().ok();
            }
            Err(io::Error::other("no such host"))
        })
    }

    #[tokio::test]
    async fn stalled_and_cancelled_lookups_of_one_requester_use_a_part_of_the_threads() {
        let (closed, gate) = mpsc::channel();
        let started = Arc::<Mutex<Vec<String>>>::default();
        let resolver = resolver(gate, &started);
        let threads = resolver.threads.clone();
        let registries = Registries::with_resolver(None, &[], resolver).unwrap();
        let read_metadata = |requester: String, host: String| {
            let digest = Digest::of(b"x");
            let reference: Reference = format!("{host}/web@{digest}").parse().unwrap();
            let client = registries.anonymous().clone();
            async move { for_requester(&requester, client.image_metadata(&reference, false)).await }
        };
        let most = usize::try_from(THREADS / PARTS).unwrap();
        let lookups = (0..3 * most).map(|number| {
            let requester = format!("system:serviceaccount:mallory:account-{}", number % 5);
            tokio::spawn(read_metadata(
                requester,
                format!("r{number}.stalled.example"),
            ))
        });
        let lookups: Vec<_> = lookups.collect();
        let all_started = async {
            while started.lock().unwrap().len() < most {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, all_started).await.unwrap();
        let other = read_metadata("ana".to_owned(), "registry.example".to_owned());
        let other = timeout(LONG, other).await.unwrap();
        let error = other.unwrap_err().to_string();
        assert!(error.contains("no such host"), "{error}");
        lookups.iter().for_each(JoinHandle::abort);
        assert!(join_all(lookups).await.iter().all(Result::is_err));
        // Only the lookups that got a thread have started.
        assert_eq!(started.lock().unwrap().len(), most + 1);
        assert_eq!(threads.used(), THREADS / PARTS);
        drop(closed);
        while threads.used() > 0 {
            tokio::task::yield_now().await;
        }
        let again = read_metadata(
            "system:serviceaccount:mallory:account-0".to_owned(),
            "r.stalled.example".to_owned(),
        );
        let again = timeout(LONG, again).await.unwrap();
        again.unwrap_err();
    }

    #[tokio::test]
    async fn lookup_that_waits_for_lookups_of_its_requester_fails_with_the_limit() {
        let (closed, gate) = mpsc::channel();
        let started = Arc::<Mutex<Vec<String>>>::default();
        let resolver = LimitedResolver {
            max_wait: Duration::from_millis(20),
            ..resolver(gate, &started)
        };
        let most = usize::try_from(THREADS / PARTS).unwrap();
        let lookups = (0..most).map(|number| {
            let resolver = resolver.clone();
            tokio::spawn(for_requester("mallory", async move {
                resolver
                    .resolve(&format!("r{number}.stalled.example"))
                    .await
            }))
        });
        let lookups: Vec<_> = lookups.collect();
        let all_started = async {
            while started.lock().unwrap().len() < most {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, all_started).await.unwrap();
        // Each lookup counts towards the limit of the requester that calls it.
        let lookup = async |requester: &str| {
            let found = for_requester(requester, async {
                resolver.resolve("registry.example").await
            });
            let error = found.await.unwrap_err();
            matches!(error.get_ref(), Some(inner) if inner.is::<LookupLimit>())
        };
        assert!(lookup("mallory").await);
        assert!(!lookup("ana").await);
        // A client has sent the name of the requester. Another client has its own limit.
        let client = Some(IpAddr::from([10, 0, 0, 1]));
        let resolving = async { resolver.resolve("registry.example").await };
        let error = for_review("mallory", client, resolving).await.unwrap_err();
        assert_eq!(error.to_string(), "no such host");
        drop(closed);
        join_all(lookups).await;
    }
}
