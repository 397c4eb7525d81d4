//! Tests of background tasks.

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
