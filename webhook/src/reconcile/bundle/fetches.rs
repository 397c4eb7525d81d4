//! Work that may take minutes and belongs to one object, such as a transfer from a registry: it goes on beside the reconciles, wakes the object when it is done,
//! and ends when the object goes.
//! Not here: what the work is (content::reader, bundle::controller).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// How long a reconcile waits for work that it has begun. Most content is there by then; a slow registry does not hold a worker.
const PATIENCE: Duration = Duration::from_secs(2);

/// The work of all objects of one kind, by name of the object.
pub(in crate::reconcile) struct Fetches<T> {
    jobs: Mutex<HashMap<String, Job<T>>>,
    wake: mpsc::UnboundedSender<String>,
}

struct Job<T> {
    /// What of the object it is for: its uid and generation.
    version: String,
    /// `None` while a reconcile waits for it. The job stays where it is then, so that it can be cancelled.
    result: Option<oneshot::Receiver<T>>,
    awaited: Arc<AtomicBool>,
    _task: Task,
}

/// Ends when dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T: Send + 'static> Fetches<T> {
    /// `wake` is told the name of each object whose work is done while nobody waits for it.
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

    /// The result of the work for this version of the object; `None` while it is under way, and then the object is woken. Work for another version is ended.
    pub(in crate::reconcile) async fn run(
        &self,
        name: &str,
        version: &str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (mut result, awaited) = self.begin(name, version, work)?;
        awaited.store(true, Ordering::SeqCst);
        let waited = tokio::time::timeout(PATIENCE, &mut result).await;
        awaited.store(false, Ordering::SeqCst);
        // What came in the last moment wakes nobody.
        let done = match waited {
            Ok(done) => Some(done.ok()),
            Err(_) => result.try_recv().ok().map(Some),
        };
        let mut jobs = self.lock();
        let job = jobs.get_mut(name).filter(|job| job.version == version);
        match (done, job) {
            (Some(done), Some(_)) => {
                jobs.remove(name);
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
        }
    }

    /// The work that is under way for this version, or new work. `None` if another reconcile waits for it already.
    fn begin(
        &self,
        name: &str,
        version: &str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<(oneshot::Receiver<T>, Arc<AtomicBool>)> {
        let mut jobs = self.lock();
        if jobs.get(name).is_none_or(|job| job.version != version) {
            let job = self.start(name, version, work);
            // What it was for before ends here.
            jobs.insert(name.to_owned(), job);
        }
        let job = jobs.get_mut(name)?;
        Some((job.result.take()?, job.awaited.clone()))
    }

    fn start(
        &self,
        name: &str,
        version: &str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Job<T> {
        let (done, result) = oneshot::channel();
        let awaited = Arc::new(AtomicBool::new(true));
        let (name, wake, waiting) = (name.to_owned(), self.wake.clone(), awaited.clone());
        let task = tokio::spawn(async move {
            let wanted = done.send(work.await).is_ok();
            if wanted && !waiting.load(Ordering::SeqCst) {
                // Nobody reconciles any more.
                wake.send(name).ok();
            }
        });
        Job {
            version: version.to_owned(),
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
        assert_eq!(fetches.run("a", "1", async { 7 }).await, Some(7));
        assert!(woken.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_work_goes_on_and_wakes_its_object() {
        let (fetches, mut woken) = fetches();
        let (slow, end) = work();
        assert_eq!(fetches.run("a", "1", slow).await, None);
        end.send(7).unwrap();
        assert_eq!(woken.recv().await.unwrap(), "a");
        let again = async { panic!("it is done already") };
        assert_eq!(fetches.run("a", "1", again).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_a_reconcile_waits_for_can_be_cancelled() {
        let (fetches, _woken) = fetches();
        let (slow, mut end) = work();
        let waiting = fetches.run("a", "1", slow);
        let cancelling = async {
            tokio::time::sleep(PATIENCE / 2).await;
            fetches.cancel("a");
            end.closed().await;
        };
        let (outcome, ()) = futures::join!(waiting, cancelling);
        assert_eq!(outcome, None);
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_with_its_object_and_with_its_version() {
        let (fetches, _woken) = fetches();
        for version in ["1", "2"] {
            let (slow, mut end) = work();
            assert_eq!(fetches.run("a", version, slow).await, None);
            if version == "1" {
                assert_eq!(fetches.run("a", "1b", async { 1 }).await, Some(1));
            } else {
                fetches.cancel("a");
            }
            end.closed().await;
        }
        let (slow, mut end) = work();
        assert_eq!(fetches.run("b", "1", slow).await, None);
        fetches.retain(|name| name == "b");
        assert!(!end.is_closed());
        fetches.retain(|name| name == "a");
        end.closed().await;
    }
}
