//! Work that may take minutes and belongs to one object, such as a transfer from a registry: it goes on beside the reconciles, wakes the object when it is done,
//! and ends when the object goes.
//! The work itself is in content::reader and bundle::unpack.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Time that a reconcile waits for work that it has begun, with a slot of its requester. Most content
/// is fetched by then. Without it, a failure would follow the phase `Unpacking` each time, and both
/// writes of the status would begin the next attempt at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum number of background tasks of one requester. Finished ones count until a reconcile reads
/// their result, which may hold what a registry returned.
pub(in crate::reconcile) const PER_REQUESTER: usize = 64;

/// The work of all objects of one kind, by name of the object.
pub(in crate::reconcile) struct Fetches<T> {
    jobs: Mutex<HashMap<String, Job<T>>>,
    wake: mpsc::UnboundedSender<String>,
}

/// The object that work is for.
#[derive(Debug, Clone, Copy)]
pub(in crate::reconcile) struct WorkOwner<'a> {
    pub(in crate::reconcile) name: &'a str,
    /// Changes with what the work depends on: the uid and generation of the object.
    pub(in crate::reconcile) version: &'a str,
    /// The user who asked for the object.
    pub(in crate::reconcile) requester: &'a str,
}

/// The state of work.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::reconcile) enum Fetch<T> {
    Done(T),
    /// It is under way, and wakes the object.
    Pending,
    /// It has not begun: [`PER_REQUESTER`] of the requester are under way. Nothing wakes the object.
    Postponed,
}

struct Job<T> {
    requester: String,
    /// What of the object it is for: its uid and generation.
    version: String,
    /// `None` while a reconcile waits for it. The job stays where it is then, so that it can be cancelled.
    result: Option<oneshot::Receiver<T>>,
    awaited: Arc<AtomicBool>,
    _task: Task,
}

/// Work that a reconcile found or began.
enum StartedWork<T> {
    /// The reconcile waits for it.
    Mine(oneshot::Receiver<T>, Arc<AtomicBool>),
    /// Another reconcile waits for it already.
    Awaited,
    /// The requester has too much of it.
    Full,
}

/// Ends when dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T: Send + 'static> Fetches<T> {
    /// `wake` receives the name of each object whose work is done while no reconcile waits for it.
    pub(in crate::reconcile) fn new(wake: mpsc::UnboundedSender<String>) -> Self {
        Self {
            jobs: Mutex::default(),
            wake,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Job<T>>> {
        // Jobs are put in and taken out whole.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result of the work for this version of the object. Work for another version is ended.
    pub(in crate::reconcile) async fn run(
        &self,
        owner: WorkOwner<'_>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Fetch<T> {
        let (mut result, awaited) = match self.begin(owner, work) {
            StartedWork::Mine(result, awaited) => (result, awaited),
            StartedWork::Awaited => return Fetch::Pending,
            StartedWork::Full => return Fetch::Postponed,
        };
        awaited.store(true, Ordering::SeqCst);
        let waited = tokio::time::timeout(PATIENCE, &mut result).await;
        awaited.store(false, Ordering::SeqCst);
        // What came in the last moment wakes nobody.
        let done = match waited {
            Ok(done) => Some(done.ok()),
            Err(_) => result.try_recv().ok().map(Some),
        };
        let mut jobs = self.lock();
        let job = jobs.get_mut(owner.name);
        let job = job.filter(|job| job.version == owner.version);
        let done = match (done, job) {
            (Some(done), Some(_)) => {
                jobs.remove(owner.name);
                // Work that panicked has no result: the next reconcile begins it anew.
                done
            }
            (Some(done), None) => done,
            (None, Some(job)) => {
                job.result = Some(result);
                None
            }
            // It was cancelled meanwhile.
            (None, None) => None,
        };
        done.map_or(Fetch::Pending, Fetch::Done)
    }

    /// The work that is under way for this version, or new work.
    fn begin(
        &self,
        owner: WorkOwner<'_>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> StartedWork<T> {
        let mut jobs = self.lock();
        let is_begun = jobs
            .get(owner.name)
            .is_some_and(|job| job.version == owner.version);
        if !is_begun {
            // What it was for before ends here.
            jobs.remove(owner.name);
            let of_requester = jobs.values().filter(|job| job.requester == owner.requester);
            if of_requester.count() >= PER_REQUESTER {
                return StartedWork::Full;
            }
            let job = self.start(owner, work);
            jobs.insert(owner.name.to_owned(), job);
        }
        let Some(job) = jobs.get_mut(owner.name) else {
            return StartedWork::Awaited;
        };
        match job.result.take() {
            Some(result) => StartedWork::Mine(result, job.awaited.clone()),
            None => StartedWork::Awaited,
        }
    }

    fn start(
        &self,
        owner: WorkOwner<'_>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Job<T> {
        let (done, result) = oneshot::channel();
        let awaited = Arc::new(AtomicBool::new(true));
        let (name, wake, waiting) = (owner.name.to_owned(), self.wake.clone(), awaited.clone());
        let task = tokio::spawn(async move {
            let wanted = done.send(work.await).is_ok();
            if wanted && !waiting.load(Ordering::SeqCst) {
                // Nobody reconciles any more.
                wake.send(name).ok();
            }
        });
        Job {
            requester: owner.requester.to_owned(),
            version: owner.version.to_owned(),
            result: Some(result),
            awaited,
            _task: Task(task),
        }
    }

    /// The object has gone: its work ends.
    pub(in crate::reconcile) fn cancel(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Ends the work of all objects that are not among these.
    pub(in crate::reconcile) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.lock().retain(|name, _| is_there(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner<'a>(name: &'a str, version: &'a str) -> WorkOwner<'a> {
        WorkOwner {
            name,
            version,
            requester: "ana",
        }
    }

    fn fetches() -> (Fetches<u8>, mpsc::UnboundedReceiver<String>) {
        let (wake, woken) = mpsc::unbounded_channel();
        (Fetches::new(wake), woken)
    }

    /// Work that ends when it is told to, and tells when it was given up.
    fn work() -> (impl Future<Output = u8>, oneshot::Sender<u8>) {
        let (end, ended) = oneshot::channel();
        (async move { ended.await.unwrap_or_default() }, end)
    }

    #[tokio::test(start_paused = true)]
    async fn quick_work_is_waited_for_and_wakes_nobody() {
        let (fetches, mut woken) = fetches();
        assert_eq!(
            fetches.run(owner("a", "1"), async { 7 }).await,
            Fetch::Done(7)
        );
        assert!(woken.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_work_goes_on_and_wakes_its_object() {
        let (fetches, mut woken) = fetches();
        let (slow, end) = work();
        assert_eq!(fetches.run(owner("a", "1"), slow).await, Fetch::Pending);
        end.send(7).unwrap();
        assert_eq!(woken.recv().await.unwrap(), "a");
        let again = async { panic!("it is done already") };
        assert_eq!(fetches.run(owner("a", "1"), again).await, Fetch::Done(7));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_a_reconcile_waits_for_can_be_cancelled() {
        let (fetches, _woken) = fetches();
        let (slow, mut end) = work();
        let waiting = fetches.run(owner("a", "1"), slow);
        let cancelling = async {
            tokio::time::sleep(PATIENCE / 2).await;
            fetches.cancel("a");
            end.closed().await;
        };
        let (outcome, ()) = futures::join!(waiting, cancelling);
        assert_eq!(outcome, Fetch::Pending);
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_with_its_object_and_with_its_version() {
        let (fetches, _woken) = fetches();
        for version in ["1", "2"] {
            let (slow, mut end) = work();
            assert_eq!(fetches.run(owner("a", version), slow).await, Fetch::Pending);
            if version == "1" {
                assert_eq!(
                    fetches.run(owner("a", "1b"), async { 1 }).await,
                    Fetch::Done(1)
                );
            } else {
                fetches.cancel("a");
            }
            end.closed().await;
        }
        let (slow, mut end) = work();
        assert_eq!(fetches.run(owner("b", "1"), slow).await, Fetch::Pending);
        fetches.retain(|name| name == "b");
        assert!(!end.is_closed());
        fetches.retain(|name| name == "a");
        end.closed().await;
    }

    #[tokio::test(start_paused = true)]
    async fn work_beyond_the_limit_of_its_requester_is_postponed() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let fetches = Fetches::new(wake);
        let mut ends = Vec::new();
        for number in 0..PER_REQUESTER {
            let (slow, end) = work();
            let name = number.to_string();
            assert_eq!(fetches.run(owner(&name, "1"), slow).await, Fetch::Pending);
            ends.push(end);
        }
        let one_more = || async { panic!("it begins too early") };
        let postponed = fetches.run(owner("more", "1"), one_more()).await;
        assert_eq!(postponed, Fetch::<u8>::Postponed);
        // Another version takes the place of the one before.
        let (slow, _end) = work();
        assert_eq!(fetches.run(owner("0", "2"), slow).await, Fetch::Pending);
        let of_ben = WorkOwner {
            requester: "ben",
            ..owner("of-ben", "1")
        };
        let (slow, _end) = work();
        assert_eq!(fetches.run(of_ben, slow).await, Fetch::Pending);
        fetches.cancel("1");
        let (slow, _end) = work();
        assert_eq!(fetches.run(owner("more", "1"), slow).await, Fetch::Pending);
    }
}
