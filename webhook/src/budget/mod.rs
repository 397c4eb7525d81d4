//! The limits of the process: memory, transfers from registries, and threads for long work. Each
//! task reserves memory, slots or threads in a [`Pool`] before it uses them.

mod caps;
pub mod limit;
pub mod lookups;
pub mod pool;
pub mod programs;
pub mod requests;
pub mod transfers;

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

use bundle_core::cancellation::Cancellation;
use bundle_core::plan::inventory::ObjectLimits;
use bundle_core::review::service_account;
use rustix::time::{ClockId, clock_gettime};

pub use pool::{Cap, CapKind, Pool, Share, ShareTooLarge};
pub use programs::ExternalPrograms;
use programs::ProgramMemory;
pub use transfers::{TransferSlot, Transfers};

const MIB: u64 = 1 << 20;

/// Anonymous memory of the process outside of the pools in [`Budget`], in bytes: runtime,
/// connections, watches, caches, and requests to the API server (`requests`). The module
/// `run::reserve` checks the sum of the constants of these parts. The section Footprint of
/// `docs/explanation/benchmarks.md` has the measured resident memory, which includes pages of the
/// program file.
pub(crate) const PROCESS_RESERVE: u64 = 32 * MIB;
/// Minimum memory of all pools in [`Budget`], in bytes. A review of the largest object needs this
/// memory.
const MIN_SHARED: u64 = 64 * MIB;
/// Maximum memory of all pools in [`Budget`], in bytes. A higher memory limit has no further
/// effect.
const MAX_SHARED: u64 = 1024 * MIB;
/// Memory for large bodies of reviews, in bytes: a body of the maximum size and a smaller body.
const LARGE_BODIES: u64 = 9 * MIB;
/// Memory for small bodies of reviews, in bytes. Large bodies do not delay small bodies.
const SMALL_BODIES: u64 = MIB;
/// Memory for small bodies whose reviews wait for memory, in bytes.
const WAITING_BODIES: u64 = MIB;
/// Maximum size of a small body, in bytes.
pub const SMALL_BODY: usize = 64 << 10;
/// Maximum number of reviews with small bodies that are being received or that wait for memory. The
/// buffers of a connection contain up to 10 KiB of each body.
const SMALL_ARRIVALS: u64 = 256;
/// Maximum number of reviews with large bodies that are being received or that wait for memory. The
/// first 10 KiB of each body, which contain the name of the requester, are in memory in addition to
/// the buffers of the connection.
const LARGE_ARRIVALS: u64 = 64;
/// Memory of one transfer, in bytes: received data before it is unpacked, buffers, and the list of
/// files (`bundle_oci::limits::NAMES`).
pub const TRANSFER: u64 = 3 * MIB;
/// Number of equal parts of the memory of reviews. One of these parts is only for small image
/// lookups (`lookups`).
const SMALL_LOOKUP_PARTS: u64 = 16;
/// Part of the memory limit for each watch of installed objects, in bytes. The memory limit divided
/// by this value is the maximum number of watches. In a measurement, 88 watches and the
/// installation of their objects needed 10 MiB: less than a quarter of this value for each watch.
const WATCH_PART: u64 = 512 << 10;
/// Part of the memory limit for each installed object, in bytes. The memory limit divided by this
/// value is the maximum number of installed objects. In a measurement, 11,000 objects and their
/// installation needed 38 MiB: less than half of this value for each object.
const OBJECT_PART: u64 = 8 << 10;
/// Memory for small image lookups of the reconciler, in bytes. Such a lookup can last as long as the
/// transfer of the layers. Without this memory, it would reduce the memory for content.
const RECONCILE_LOOKUPS: u64 = 512 << 10;
/// Maximum number of concurrent signature verifications in reviews. Each requester can run one
/// verification at a time from each client address. Therefore another requester waits for at most
/// one verification.
const VERIFICATIONS: u64 = 2;
/// Number of concurrent threads of one [`WorkerThread`]. With one thread, one of two cores remains
/// for reviews and the reconciler while content is parsed. The memory in [`PROCESS_RESERVE`] is
/// also sufficient for only one thread.
const BLOCKING_THREADS: u64 = 1;
/// Maximum CPU time of one call of [`Budget::blocking`]. The largest content of each format needs a
/// few seconds.
const PROCESSOR_TIME: Duration = Duration::from_secs(60);

/// Memory of one entry of a `moka` cache without its key and value, in bytes. The cache stores the
/// state of each entry, and references to the entry in a map and in two lists.
pub(crate) const CACHE_ENTRY: usize = 384;

/// Minimum memory limit of the process, in bytes.
pub const SMALLEST_LIMIT: u64 = PROCESS_RESERVE + MIN_SHARED;
/// Default memory limit, in bytes. The shipped Deployment has the same limit.
pub const DEFAULT_LIMIT: u64 = 128 * MIB;

/// Returns the name by which the limits identify a requester. For a ServiceAccount, this is the
/// group of all ServiceAccounts in its namespace. For any other user, it is the user name. Without
/// the group, a user who can create ServiceAccounts in a namespace could multiply their limits.
pub fn limited_requester(requester: &str) -> String {
    match service_account(requester) {
        Some((namespace, _)) => format!("system:serviceaccounts:{namespace}"),
        None => requester.to_owned(),
    }
}

/// Returns the key of a requester in the limits of a [`Pool`] ([`Cap::key`]).
pub fn requester_key(requester: &str) -> String {
    format!("requester {}", limited_requester(requester))
}

/// Returns the key of a client address in the limits of a [`Pool`] ([`Cap::key`]).
pub fn address_key(client: IpAddr) -> String {
    format!("address {client}")
}

/// The limits of one process.
#[derive(Debug)]
pub struct Budget {
    /// Memory in bytes, by client address and requester, for large bodies of reviews that are not
    /// parsed yet. A review always reserves this memory before [`Budget::parsed_objects`].
    pub bodies: Pool,
    /// Memory for small bodies of reviews, in bytes, by client address.
    pub small_bodies: Pool,
    /// Number of reviews with large bodies that are still being received, by client address and
    /// requester.
    pub large_arrivals: Pool,
    /// Number of reviews with small bodies that are still being received, by client address.
    pub small_arrivals: Pool,
    /// Memory in bytes, by requester, for small bodies of reviews that wait for
    /// [`Budget::parsed_objects`]. They no longer count for [`Budget::small_bodies`].
    pub waiting_bodies: Pool,
    /// Lengths of large bodies of reviews that wait for [`Budget::parsed_objects`], in bytes, by
    /// requester. Their memory is in [`Budget::bodies`], but no longer counts for the requester
    /// there.
    pub waiting_large_bodies: Pool,
    /// Memory in bytes, by requester, for the parsed objects of reviews, and for registry responses
    /// about the images in these objects (`lookups`). The reconciler never uses this memory.
    pub parsed_objects: Pool,
    /// Memory for registry responses about ordinary images in reviews, in bytes, by requester.
    pub small_lookups: Pool,
    /// Memory for registry responses about ordinary images in reconciles, in bytes, by requester.
    pub reconcile_lookups: Pool,
    /// Memory for parsed content of bundles and its files, and for larger registry responses that
    /// the reconciler reads (`lookups`), in bytes, by requester.
    pub content: Pool,
    /// Memory for commands of git, in bytes, by requester.
    pub git: Pool,
    /// Memory for helm, in bytes. helm has its own slots.
    pub helm: u64,
    /// Slots for transfers, and for the unpacked contents that the transfers write to disk.
    pub transfers: Transfers,
    /// Number of watches of installed objects, by requester.
    pub watches: Pool,
    /// Number of signature verifications in reviews, by requester.
    pub verifications: Pool,
    /// Maximum numbers of installed objects.
    pub installed_objects: ObjectLimits,
    content_thread: Pool,
    object_thread: Pool,
    /// Maximum CPU time of one call of [`Budget::blocking`].
    processor_time: Duration,
}

/// A thread for work that needs much CPU time. Work on one thread never waits for work on the other
/// thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerThread {
    /// Estimates the memory of content, and parses and renders the content. One bundle can use this
    /// thread for seconds.
    Content,
    /// Parses reviews, and reads single objects of content for a restore.
    Objects,
}

impl Budget {
    /// Divides a memory limit of `limit` bytes into pools, in an image with these programs.
    pub fn new(limit: u64, programs: ExternalPrograms) -> Self {
        let programs = ProgramMemory::new(limit, programs);
        let shared = limit
            .saturating_sub(PROCESS_RESERVE + programs.git + programs.helm)
            .clamp(MIN_SHARED, MAX_SHARED)
            - LARGE_BODIES
            - SMALL_BODIES;
        let transfers = shared / 6 / TRANSFER;
        let reviews = shared * 3 / 8;
        let small_lookups = reviews / SMALL_LOOKUP_PARTS;
        Self {
            bodies: Pool::new(LARGE_BODIES),
            small_bodies: Pool::divided(SMALL_BODIES),
            large_arrivals: Pool::divided(LARGE_ARRIVALS),
            small_arrivals: Pool::divided(SMALL_ARRIVALS),
            waiting_bodies: Pool::new(WAITING_BODIES),
            waiting_large_bodies: Pool::new(LARGE_BODIES),
            parsed_objects: Pool::new(reviews - small_lookups),
            small_lookups: Pool::new(small_lookups),
            reconcile_lookups: Pool::new(RECONCILE_LOOKUPS),
            content: Pool::new(
                shared - reviews - transfers * TRANSFER - WAITING_BODIES - RECONCILE_LOOKUPS,
            ),
            git: Pool::new(programs.git),
            helm: programs.helm,
            transfers: Transfers::new(transfers),
            watches: Pool::new(limit.min(MAX_SHARED) / WATCH_PART),
            verifications: Pool::new(VERIFICATIONS),
            installed_objects: ObjectLimits {
                total: limit / OBJECT_PART,
                requester: limit / OBJECT_PART / 2,
            },
            content_thread: Pool::new(BLOCKING_THREADS),
            object_thread: Pool::new(BLOCKING_THREADS),
            processor_time: PROCESSOR_TIME,
        }
    }

    /// Returns the maximum memory for the content of one bundle, in bytes: seven eighths of the
    /// pool. Content can use its memory for as long as it is installed. The last eighth remains for
    /// smaller content of other requesters.
    pub fn largest_content(&self) -> u64 {
        self.content.capacity() / 8 * 7
    }

    /// Returns the maximum memory of one review, in bytes: seven eighths of the limit of a client
    /// address ([`Budget::by_address`]). A review whose lookups stall uses its memory until its
    /// deadline. The last eighth remains for smaller reviews from the same address.
    pub fn largest_review(&self) -> u64 {
        self.parsed_objects.capacity() / 4 * 3 / 8 * 7
    }

    /// Runs `work` on `thread` as soon as `thread` is free. Returns `None` if the thread panicked.
    ///
    /// `key` identifies the requester ([`requester_key`]) or another user of the thread. Calls with
    /// different keys alternate: a call waits for at most one call of each other key. The argument
    /// of `work` is cancelled after [`PROCESSOR_TIME`], or when the future is dropped. Cancelled
    /// work occupies the thread until it ends. Therefore `work` must own the [`Share`] of the
    /// memory that it uses, and return this share with the result. Otherwise the memory would be
    /// released too early.
    pub async fn blocking<T: Send + 'static>(
        &self,
        thread: WorkerThread,
        key: String,
        work: impl FnOnce(&Cancellation) -> T + Send + 'static,
    ) -> Option<T> {
        let pool = self.thread(thread);
        let turn = pool.take(1, vec![Cap::new(key, 1)]).await.ok()?;
        let cancellation = Cancellation::with_limit(processor_time_limit(self.processor_time));
        let _guard = CancelOnDrop(cancellation.clone());
        let running = tokio::task::spawn_blocking(move || {
            let result = work(&cancellation);
            drop(turn);
            result
        });
        running.await.ok()
    }

    fn thread(&self, thread: WorkerThread) -> &Pool {
        match thread {
            WorkerThread::Content => &self.content_thread,
            WorkerThread::Objects => &self.object_thread,
        }
    }
}

/// The limits of a pod with the default memory limit and without external programs.
#[cfg(test)]
impl Default for Budget {
    fn default() -> Self {
        Self::new(DEFAULT_LIMIT, ExternalPrograms::default())
    }
}

/// Returns a function that returns true when the calling thread has used more than `limit` of CPU
/// time since the first call.
fn processor_time_limit(limit: Duration) -> impl Fn() -> bool + Send + Sync {
    let first = OnceLock::new();
    move || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let now = Duration::try_from(now).unwrap_or_default();
        now.saturating_sub(*first.get_or_init(|| now)) > limit
    }
}

/// Guard that cancels the running work when the future of [`Budget::blocking`] is dropped.
struct CancelOnDrop(Cancellation);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Waits for a share for at most `timeout`. Returns `None` after that time.
pub async fn wait_for_share(
    timeout: Duration,
    share: impl Future<Output = Result<Share, ShareTooLarge>>,
) -> Option<Result<Share, ShareTooLarge>> {
    tokio::time::timeout(timeout, share).await.ok()
}

#[cfg(test)]
mod tests {
    use bundle_core::diagnostic::codes;
    use bundle_core::yaml::{self, Allowance};

    use super::*;

    #[test]
    fn shares_and_reserve_equal_the_limit() {
        let [none, git, all] = [(false, false), (true, false), (true, true)]
            .map(|(git, helm)| ExternalPrograms { git, helm });
        for (limit, programs) in [
            (SMALLEST_LIMIT, none),
            (DEFAULT_LIMIT, all),
            (192 * MIB, git),
            (352 * MIB, all),
            (512 * MIB, none),
            (512 * MIB, all),
        ] {
            let budget = Budget::new(limit, programs);
            let bodies = [&budget.bodies, &budget.small_bodies, &budget.waiting_bodies];
            let reviews = [&budget.parsed_objects, &budget.small_lookups];
            let others = [&budget.reconcile_lookups, &budget.content, &budget.git];
            let pools = bodies.into_iter().chain(reviews).chain(others);
            let shares: u64 = pools.map(Pool::capacity).sum();
            let shares = shares + budget.transfers.max_concurrent() * TRANSFER;
            assert_eq!(shares + budget.helm + PROCESS_RESERVE, limit);
        }
    }

    #[test]
    fn default_limit_fits_the_largest_review_and_several_transfers() {
        let budget = Budget::default();
        assert!(budget.bodies.capacity() >= 8 * MIB);
        assert!(budget.parsed_objects.capacity() >= 30 * MIB);
        assert!(budget.content.capacity() >= 40 * MIB);
        assert!(budget.transfers.max_concurrent() >= 4);
    }

    #[tokio::test]
    async fn largest_content_leaves_memory_to_another_requester() {
        let budget = Budget::default();
        let (pool, most) = (&budget.content, budget.largest_content());
        let of_ana = pool.take(most, Budget::half(pool, "ana")).await.unwrap();
        let rest = pool.capacity() - most;
        assert!(rest >= 5 * MIB);
        let of_ben = pool.try_take(rest, Budget::half(pool, "ben"));
        assert!(of_ben.is_some());
        drop(of_ana);
    }

    #[tokio::test]
    async fn largest_review_leaves_memory_to_another_requester() {
        let budget = Budget::default();
        let (pool, most) = (&budget.parsed_objects, budget.largest_review());
        // The largest review has two objects of the maximum size (3 MiB), each as text and parsed.
        let smallest = Budget::new(SMALLEST_LIMIT, ExternalPrograms::default());
        assert!(most.min(smallest.largest_review()) >= 4 * 3 * MIB);
        let of_ana = pool.take(most, Budget::half(pool, "ana")).await.unwrap();
        let rest = pool.capacity() - most;
        assert!(rest >= 3 * MIB);
        assert!(pool.try_take(rest, Budget::half(pool, "ben")).is_some());
        drop(of_ana);
    }

    #[test]
    fn service_accounts_of_a_namespace_share_one_limit() {
        let key = requester_key("system:serviceaccount:team-a:one");
        assert_eq!(key, requester_key("system:serviceaccount:team-a:two"));
        for other in [
            "system:serviceaccount:team-b:one",
            "ana",
            "system:serviceaccount:team-a",
        ] {
            assert_ne!(key, requester_key(other));
        }
    }

    #[tokio::test]
    async fn cancelled_work_keeps_its_thread_and_its_share_until_it_ends() {
        let budget = Budget::default();
        let share = budget.content.take(MIB, Vec::new()).await.unwrap();
        let (start, started) = tokio::sync::oneshot::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let work = budget.blocking(
            WorkerThread::Content,
            requester_key("ana"),
            move |cancellation| {
                start.send(()).unwrap();
                ended.recv().ok();
                assert!(cancellation.is_cancelled());
                share
            },
        );
        let mut work = Box::pin(work);
        tokio::select! {
            _ = &mut work => panic!("it ends too early"),
            started = started => started.unwrap(),
        }
        drop(work);
        assert_eq!(budget.content_thread.used(), 1);
        assert_eq!(budget.content.used(), MIB);
        // Reviews and restores run on another thread, which is free.
        budget
            .blocking(WorkerThread::Objects, requester_key("ana"), |_| ())
            .await
            .unwrap();
        end.send(()).unwrap();
        // The next call and the reservation of all memory wait until the cancelled work has ended.
        budget
            .blocking(WorkerThread::Content, requester_key("ana"), |_| ())
            .await
            .unwrap();
        let all = budget.content.take(budget.content.capacity(), Vec::new());
        assert!(all.await.is_ok());
    }

    #[tokio::test]
    async fn parsing_ends_soon_after_it_is_cancelled() {
        let budget = Budget::default();
        let (start, started) = tokio::sync::oneshot::channel();
        let text = format!("a: [{}]\n", "0,".repeat(1_000));
        let work = budget.blocking(
            WorkerThread::Content,
            requester_key("ana"),
            move |cancellation| {
                start.send(()).unwrap();
                // Without cancellation this loop never ends.
                loop {
                    let mut allowance = Allowance::new(cancellation);
                    if let Err(finding) = yaml::weigh(text.as_bytes(), "a.yaml", &mut allowance) {
                        assert_eq!(finding.code, codes::format::CANCELLED);
                        return;
                    }
                }
            },
        );
        let mut work = Box::pin(work);
        tokio::select! {
            _ = &mut work => panic!("it ends too early"),
            started = started => started.unwrap(),
        }
        drop(work);
        let next = budget.blocking(WorkerThread::Content, requester_key("ana"), |_| ());
        let free = tokio::time::timeout(Duration::from_secs(30), next).await;
        assert_eq!(free, Ok(Some(())));
    }

    #[tokio::test]
    async fn work_that_exceeds_its_processor_time_is_cancelled() {
        let budget = Budget {
            processor_time: Duration::from_millis(10),
            ..Budget::default()
        };
        let key = requester_key("ana");
        let work = budget.blocking(WorkerThread::Content, key, |cancellation| {
            // Without the limit this loop never ends.
            while !cancellation.is_cancelled() {
                std::hint::spin_loop();
            }
        });
        let ended = tokio::time::timeout(Duration::from_secs(30), work).await;
        assert_eq!(ended, Ok(Some(())));
    }

    #[tokio::test]
    async fn requesters_take_turns_on_a_thread() {
        let budget = Budget::default();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (done, order) = std::sync::mpsc::channel();
        let work = |name: &'static str| {
            let done = done.clone();
            let key = requester_key(name);
            budget.blocking(WorkerThread::Content, key, move |_| done.send(name))
        };
        let first = budget.blocking(WorkerThread::Content, requester_key("ana"), move |_| {
            ended.recv()
        });
        let all = futures::future::join(
            first,
            futures::future::join_all(["ana", "ana", "ben", "cleo"].map(work)),
        );
        let release = async {
            // All calls wait for the thread when this future is polled.
            end.send(()).unwrap();
        };
        futures::future::join(all, release).await;
        drop(done);
        let order: Vec<_> = order.try_iter().collect();
        assert_eq!(order, ["ben", "cleo", "ana", "ana"]);
    }

    #[test]
    fn processor_time_of_a_thread_is_limited() {
        let generous = processor_time_limit(Duration::from_secs(3600));
        assert!(!generous() && !generous());
        let strict = processor_time_limit(Duration::ZERO);
        // The first call starts the measurement.
        assert!(!strict());
        while !strict() {
            std::hint::spin_loop();
        }
    }
}
