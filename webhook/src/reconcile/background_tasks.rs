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
/// Maximum number of renderings of one requester that wait for helm or run. A waiting rendering
/// keeps the values of the chart and `spec.config`, a few MiB, for which no memory is reserved. The
/// second rendering lets helm start at once after the first.
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
    /// its result. Without this call, a task whose result no reconcile reads counts as a task of
    /// its requester.
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
mod tests {
    use super::*;

    /// Returns a task owner with this name. Its uid equals the name.
    fn owner<'a>(name: &'a str, version: &'a str) -> TaskOwner<'a> {
        TaskOwner {
            name,
            uid: name,
            version,
            content: "",
            requester: "ana",
        }
    }

    fn background_tasks() -> (BackgroundTasks<u8>, mpsc::UnboundedReceiver<String>) {
        let (wake, woken) = mpsc::unbounded_channel();
        (BackgroundTasks::new(wake), woken)
    }

    /// Returns a future, and the sender that ends this future. The sender also reports when the
    /// future was dropped.
    fn work() -> (impl Future<Output = u8>, oneshot::Sender<u8>) {
        let (end, ended) = oneshot::channel();
        (async move { ended.await.unwrap_or_default() }, end)
    }

    #[tokio::test(start_paused = true)]
    async fn short_task_ends_within_the_reconcile() {
        let (background_tasks, mut woken) = background_tasks();
        assert_eq!(
            background_tasks.run(owner("a", "1"), async { 7 }).await,
            TaskState::Done(7)
        );
        assert!(woken.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn long_task_continues_and_triggers_a_reconcile() {
        let (background_tasks, mut woken) = background_tasks();
        let (slow, end) = work();
        assert_eq!(
            background_tasks.run(owner("a", "1"), slow).await,
            TaskState::Pending
        );
        end.send(7).unwrap();
        assert_eq!(woken.recv().await.unwrap(), "a");
        assert!(background_tasks.is_started("a", "1") && !background_tasks.is_started("a", "2"));
        let again = async { panic!("it is done already") };
        assert_eq!(
            background_tasks.run(owner("a", "1"), again).await,
            TaskState::Done(7)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_a_reconcile_waits_for_can_be_cancelled() {
        let (background_tasks, _woken) = background_tasks();
        let (slow, mut end) = work();
        let waiting = background_tasks.run(owner("a", "1"), slow);
        let cancelling = async {
            tokio::time::sleep(RESULT_WAIT_LIMIT / 2).await;
            background_tasks.cancel("a");
            end.closed().await;
        };
        let (outcome, ()) = futures::join!(waiting, cancelling);
        assert_eq!(outcome, TaskState::Pending);
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_with_its_object_and_with_its_version() {
        let (background_tasks, _woken) = background_tasks();
        for version in ["1", "2"] {
            let (slow, mut end) = work();
            assert_eq!(
                background_tasks.run(owner("a", version), slow).await,
                TaskState::Pending
            );
            if version == "1" {
                assert_eq!(
                    background_tasks.run(owner("a", "1b"), async { 1 }).await,
                    TaskState::Done(1)
                );
            } else {
                background_tasks.cancel("a");
            }
            end.closed().await;
        }
        let (slow, mut end) = work();
        assert_eq!(
            background_tasks.run(owner("b", "1"), slow).await,
            TaskState::Pending
        );
        background_tasks.cancel_objects(&["a".to_owned()].into());
        assert!(!end.is_closed());
        background_tasks.cancel_objects(&["b".to_owned()].into());
        end.closed().await;
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_for_several_contents_of_an_object_do_not_take_results_of_each_other() {
        let (background_tasks, mut woken) = background_tasks();
        let of = |content| TaskOwner {
            content,
            ..owner("a", "1")
        };
        let (requested, end_requested) = work();
        let (installed, end_installed) = work();
        for (content, slow) in [("requested", requested), ("installed", installed)] {
            let state = background_tasks.run(of(content), slow).await;
            assert_eq!(state, TaskState::Pending);
        }
        end_requested.send(1).unwrap();
        end_installed.send(2).unwrap();
        for _ in 0..2 {
            assert_eq!(woken.recv().await.unwrap(), "a");
        }
        let again = || async { panic!("it is done already") };
        for (content, expected) in [("installed", 2), ("requested", 1)] {
            let state = background_tasks.run(of(content), again()).await;
            assert_eq!(state, TaskState::Done(expected));
        }
        assert!(background_tasks.uids().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn new_version_and_deletion_cancel_the_tasks_for_all_contents() {
        let (background_tasks, _woken) = background_tasks();
        let of = |content, version| TaskOwner {
            content,
            ..owner("a", version)
        };
        for version in ["1", "2"] {
            let mut ends = Vec::new();
            for content in ["requested", "installed"] {
                let (slow, end) = work();
                let state = background_tasks.run(of(content, version), slow).await;
                assert_eq!(state, TaskState::Pending);
                ends.push(end);
            }
            if version == "1" {
                let next = background_tasks.run(of("requested", "1b"), async { 1 });
                assert_eq!(next.await, TaskState::Done(1));
            } else {
                background_tasks.cancel("a");
            }
            for mut end in ends {
                end.closed().await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ended_task_is_removed_without_its_result_and_a_running_task_continues() {
        let (background_tasks, mut woken) = background_tasks();
        let (slow, end) = work();
        let state = background_tasks.run(owner("a", "1"), slow).await;
        assert_eq!(state, TaskState::Pending);
        background_tasks.remove_ended("a", "", |_| false);
        assert!(background_tasks.is_started("a", "1"));
        end.send(7).unwrap();
        woken.recv().await.unwrap();
        // The task ends after it has sent the name of its object.
        while background_tasks.is_started("a", "1") {
            background_tasks.remove_ended("a", "other", |_| false);
            background_tasks.remove_ended("a", "", |_| false);
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn needed_result_of_an_ended_task_is_kept() {
        let (background_tasks, mut woken) = background_tasks();
        let (slow, end) = work();
        let state = background_tasks.run(owner("a", "1"), slow).await;
        assert_eq!(state, TaskState::Pending);
        end.send(7).unwrap();
        woken.recv().await.unwrap();
        let mut is_seen = false;
        // The task ends after it has sent the name of its object.
        while !is_seen {
            background_tasks.remove_ended("a", "", |result| {
                is_seen = true;
                *result == 7
            });
            tokio::task::yield_now().await;
        }
        let again = async { panic!("it is done already") };
        let state = background_tasks.run(owner("a", "1"), again).await;
        assert_eq!(state, TaskState::Done(7));
    }

    #[tokio::test(start_paused = true)]
    async fn deletion_of_an_object_keeps_the_task_of_a_new_object_of_the_same_name() {
        let (background_tasks, _woken) = background_tasks();
        let (slow, end) = work();
        let new = TaskOwner {
            uid: "u-2",
            ..owner("a", "1")
        };
        assert_eq!(background_tasks.run(new, slow).await, TaskState::Pending);
        assert_eq!(background_tasks.uids(), BTreeSet::from(["u-2".to_owned()]));
        background_tasks.cancel_objects(&["u-1".to_owned()].into());
        assert!(!end.is_closed());
        assert_eq!(background_tasks.uids(), BTreeSet::from(["u-2".to_owned()]));
    }

    #[tokio::test(start_paused = true)]
    async fn work_beyond_the_limit_of_unfinished_tasks_is_postponed() {
        let (background_tasks, mut woken) = background_tasks();
        let background_tasks = background_tasks.with_unfinished_limit(2);
        let mut ends = Vec::new();
        for name in ["a", "b"] {
            let (slow, end) = work();
            let state = background_tasks.run(owner(name, "1"), slow).await;
            assert_eq!(state, TaskState::Pending);
            ends.push(end);
        }
        let one_more = async { panic!("it begins too early") };
        let postponed = background_tasks.run(owner("c", "1"), one_more).await;
        assert_eq!(postponed, TaskState::Postponed);
        let of_ben = TaskOwner {
            requester: "ben",
            ..owner("of-ben", "1")
        };
        let state = background_tasks.run(of_ben, async { 1 }).await;
        assert_eq!(state, TaskState::Done(1));
        ends.remove(0).send(7).unwrap();
        assert_eq!(woken.recv().await.unwrap(), "a");
        // The task ends after it has sent the name of its object. No reconcile reads its result.
        let begun = async {
            loop {
                let state = background_tasks.run(owner("c", "1"), async { 3 }).await;
                if state != TaskState::Postponed {
                    return state;
                }
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(begun.await, TaskState::Done(3));
        assert!(background_tasks.is_started("a", "1") && background_tasks.is_started("b", "1"));
    }

    #[tokio::test(start_paused = true)]
    async fn work_beyond_the_limit_of_its_requester_is_postponed() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let background_tasks = BackgroundTasks::new(wake);
        let mut ends = Vec::new();
        for number in 0..TASKS_PER_REQUESTER {
            let (slow, end) = work();
            let name = number.to_string();
            assert_eq!(
                background_tasks.run(owner(&name, "1"), slow).await,
                TaskState::Pending
            );
            ends.push(end);
        }
        let one_more = || async { panic!("it begins too early") };
        let postponed = background_tasks.run(owner("more", "1"), one_more()).await;
        assert_eq!(postponed, TaskState::<u8>::Postponed);
        // A task for a new version replaces the task for the earlier version.
        let (slow, _end) = work();
        assert_eq!(
            background_tasks.run(owner("0", "2"), slow).await,
            TaskState::Pending
        );
        let of_ben = TaskOwner {
            requester: "ben",
            ..owner("of-ben", "1")
        };
        let (slow, _end) = work();
        assert_eq!(background_tasks.run(of_ben, slow).await, TaskState::Pending);
        background_tasks.cancel("1");
        let (slow, _end) = work();
        assert_eq!(
            background_tasks.run(owner("more", "1"), slow).await,
            TaskState::Pending
        );
    }
}
