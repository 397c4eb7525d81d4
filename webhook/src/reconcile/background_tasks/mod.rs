//! Background tasks of objects. A task can run for minutes, for example a transfer from a registry.
//! The tasks do not block reconciles. The end of a task triggers a reconcile of its object. The
//! deletion of an object cancels its task.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::budget::requester_key;

/// Maximum time that a reconcile waits for its background task. During the wait, the reconcile uses
/// a slot of its requester. Most content is fetched within this time. Without the wait, each failed
/// attempt would write the status twice: the phase `Unpacking`, and then the failure.
const RESULT_WAIT_LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of background tasks of one requester. A finished task counts until a reconcile
/// reads its result, because the result can contain data of a registry.
pub(in crate::reconcile) const TASKS_PER_REQUESTER: usize = 64;
/// Maximum number of renderings of one requester that run or wait for helm. A waiting rendering
/// keeps the values of the chart and `spec.config`, a few MiB, for which no memory is reserved.
/// With two renderings, helm can start the second immediately after the first has ended.
pub(in crate::reconcile) const RENDERINGS_PER_REQUESTER: usize = 2;

/// The background tasks of all objects of one kind.
pub(in crate::reconcile) struct BackgroundTasks<T> {
    tasks: Mutex<Tasks<T>>,
    wake: mpsc::UnboundedSender<String>,
    /// Maximum number of unfinished tasks of one requester.
    unfinished_per_requester: usize,
}

/// Tasks by object name and content ([`TaskOwner::content`]).
type Tasks<T> = HashMap<(String, String), TaskEntry<T>>;

/// The object and the content that a task belongs to.
#[derive(Debug, Clone, Copy)]
pub(in crate::reconcile) struct TaskOwner<'a> {
    pub(in crate::reconcile) name: &'a str,
    pub(in crate::reconcile) uid: &'a str,
    /// The version of the object for which the task runs. If the version changes, all tasks of the
    /// object are cancelled. For a Bundle, the version contains uid, digest of the normalized spec,
    /// and requester. For a BundleDeployment, the version contains uid and generation.
    pub(in crate::reconcile) version: &'a str,
    /// The content that the task fetches or renders. An object can have one task for each content,
    /// for example for the requested and for the installed content. Empty if all tasks of the
    /// object have the same content.
    pub(in crate::reconcile) content: &'a str,
    /// The user who requested the object.
    pub(in crate::reconcile) requester: &'a str,
}

impl TaskOwner<'_> {
    fn key(&self) -> (String, String) {
        (self.name.to_owned(), self.content.to_owned())
    }
}

/// State of a background task.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::reconcile) enum TaskState<T> {
    Done(T),
    /// The task is running. A reconcile of the object starts when the task ends.
    Pending,
    /// The task has not started, because the requester already has [`TASKS_PER_REQUESTER`] tasks,
    /// or the maximum number of unfinished tasks. No event starts a later reconcile of the object,
    /// so the caller must schedule it.
    Postponed,
}

struct TaskEntry<T> {
    requester: String,
    /// Uid of the object that the task belongs to.
    uid: String,
    /// Version of the object that the task belongs to.
    version: String,
    /// Receiver of the result. `None` while a reconcile waits for the result. In this case the
    /// entry stays in the map so that the task can be cancelled.
    result: Option<oneshot::Receiver<T>>,
    awaited: Arc<AtomicBool>,
    task: Task,
}

/// Result of looking up or starting a task.
enum TaskStart<T> {
    /// The task runs or has ended. The reconcile must wait for the result.
    Waiting(oneshot::Receiver<T>, Arc<AtomicBool>),
    /// Another reconcile already waits for the result of the task.
    AlreadyAwaited,
    /// The requester has reached the maximum number of tasks.
    LimitReached,
}

/// A task that is aborted when it is dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<T: Send + 'static> BackgroundTasks<T> {
    /// Creates an empty set of tasks. When a task ends while no reconcile waits for its result,
    /// `wake` receives the name of its object.
    pub(in crate::reconcile) fn new(wake: mpsc::UnboundedSender<String>) -> Self {
        Self {
            tasks: Mutex::default(),
            wake,
            unfinished_per_requester: TASKS_PER_REQUESTER,
        }
    }

    /// Limits the unfinished tasks of one requester to `limit`. Used for tasks that use memory
    /// while they wait. A finished task does not count, because a reconcile can fail before it
    /// reads the result.
    pub(in crate::reconcile) fn with_unfinished_limit(self, limit: usize) -> Self {
        Self {
            unfinished_per_requester: limit,
            ..self
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tasks<T>> {
        // Each entry is inserted and removed in one step, so the map is consistent after a panic.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a task with `work`, unless a task for this version and content of the object exists.
    /// Cancels all tasks for another version. Then waits a short time for the result of the task.
    pub(in crate::reconcile) async fn run(
        &self,
        owner: TaskOwner<'_>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> TaskState<T> {
        let (mut result, awaited) = match self.begin(owner, work) {
            TaskStart::Waiting(result, awaited) => (result, awaited),
            TaskStart::AlreadyAwaited => return TaskState::Pending,
            TaskStart::LimitReached => return TaskState::Postponed,
        };
        awaited.store(true, Ordering::SeqCst);
        let waited = tokio::time::timeout(RESULT_WAIT_LIMIT, &mut result).await;
        awaited.store(false, Ordering::SeqCst);
        // A result that arrived directly after the timeout starts no reconcile, so the channel is
        // read again.
        let done = match waited {
            Ok(done) => Some(done.ok()),
            Err(_) => result.try_recv().ok().map(Some),
        };
        let (key, mut tasks) = (owner.key(), self.lock());
        let entry = tasks.get_mut(&key);
        let entry = entry.filter(|entry| entry.version == owner.version);
        let done = match (done, entry) {
            (Some(done), Some(_)) => {
                tasks.remove(&key);
                // A task that panicked has no result. The next reconcile starts a new task.
                done
            }
            (Some(done), None) => done,
            (None, Some(entry)) => {
                entry.result = Some(result);
                None
            }
            // The task was cancelled while this reconcile waited.
            (None, None) => None,
        };
        done.map_or(TaskState::Pending, TaskState::Done)
    }

    /// Finds the task for this version and content of the object, or starts a task.
    fn begin(
        &self,
        owner: TaskOwner<'_>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> TaskStart<T> {
        let (key, mut tasks) = (owner.key(), self.lock());
        // Removing an entry cancels the task.
        tasks.retain(|(name, _), entry| name != owner.name || entry.version == owner.version);
        if !tasks.contains_key(&key) {
            let requester = requester_key(owner.requester);
            let of_requester = tasks.values().filter(|entry| entry.requester == requester);
            let (mut all, mut unfinished) = (0, 0);
            for entry in of_requester {
                all += 1;
                unfinished += usize::from(!entry.task.0.is_finished());
            }
            if all >= TASKS_PER_REQUESTER || unfinished >= self.unfinished_per_requester {
                return TaskStart::LimitReached;
            }
            let entry = self.start(owner, work);
            tasks.insert(key.clone(), entry);
        }
        let Some(entry) = tasks.get_mut(&key) else {
            return TaskStart::AlreadyAwaited;
        };
        match entry.result.take() {
            Some(result) => TaskStart::Waiting(result, entry.awaited.clone()),
            None => TaskStart::AlreadyAwaited,
        }
    }

    fn start(
        &self,
        owner: TaskOwner<'_>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> TaskEntry<T> {
        let (done, result) = oneshot::channel();
        let awaited = Arc::new(AtomicBool::new(true));
        let (name, wake, waiting) = (owner.name.to_owned(), self.wake.clone(), awaited.clone());
        let task = tokio::spawn(async move {
            let wanted = done.send(work.await).is_ok();
            if wanted && !waiting.load(Ordering::SeqCst) {
                // No reconcile waits for the result, so a reconcile is started.
                wake.send(name).ok();
            }
        });
        TaskEntry {
            requester: requester_key(owner.requester),
            uid: owner.uid.to_owned(),
            version: owner.version.to_owned(),
            result: Some(result),
            awaited,
            task: Task(task),
        }
    }

    /// Cancels all tasks of an object that was deleted.
    pub(in crate::reconcile) fn cancel(&self, name: &str) {
        self.lock().retain(|(of, _), _| of != name);
    }

    /// Removes the ended task for this content of an object, unless `is_needed` returns true for
    /// its result. Without this call, an ended task whose result no reconcile reads still counts as
    /// a task of its requester.
    pub(in crate::reconcile) fn remove_ended(
        &self,
        name: &str,
        content: &str,
        is_needed: impl FnOnce(&T) -> bool,
    ) {
        let key = (name.to_owned(), content.to_owned());
        let mut tasks = self.lock();
        let entry = tasks.get_mut(&key);
        let Some(entry) = entry.filter(|entry| entry.task.0.is_finished()) else {
            return;
        };
        // A reconcile that waits for the result removes the task.
        let Some(mut result) = entry.result.take() else {
            return;
        };
        if let Some(needed) = result.try_recv().ok().filter(is_needed) {
            let (done, unread) = oneshot::channel();
            // The receiver exists, so sending never fails.
            done.send(needed).ok();
            entry.result = Some(unread);
        } else {
            tasks.remove(&key);
        }
    }

    /// Cancels all tasks of an object, and starts a reconcile of the object.
    pub(in crate::reconcile) fn restart(&self, name: &str) {
        self.cancel(name);
        self.wake(name);
    }

    /// Starts a reconcile of an object.
    pub(in crate::reconcile) fn wake(&self, name: &str) {
        // Sending fails only when the controllers have ended.
        self.wake.send(name.to_owned()).ok();
    }

    /// Returns true if a task for this version of the object runs, or has ended with a result that
    /// no reconcile has read yet.
    pub(in crate::reconcile) fn is_started(&self, name: &str, version: &str) -> bool {
        let tasks = self.lock();
        let mut entries = tasks.iter();
        entries.any(|((of, _), entry)| of == name && entry.version == version)
    }

    /// Returns the uids of the objects with a task.
    pub(in crate::reconcile) fn uids(&self) -> BTreeSet<String> {
        let tasks = self.lock();
        tasks.values().map(|entry| entry.uid.clone()).collect()
    }

    /// Cancels the tasks of the objects with these uids.
    pub(in crate::reconcile) fn cancel_objects(&self, uids: &BTreeSet<String>) {
        self.lock().retain(|_, entry| !uids.contains(&entry.uid));
    }
}

#[cfg(test)]
mod tests;
