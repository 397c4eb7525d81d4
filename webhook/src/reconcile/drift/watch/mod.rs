//! Metadata watches of the kinds of installed objects. One watch exists for each combination of
//! installing ServiceAccount, kind and namespace (or all namespaces). Several BundleDeployments can
//! use the same watch. The number of watches of each requester is limited, because each watch needs
//! a connection. `drift::states` evaluates the events.

mod task;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bundle_core::diagnostic::{Code, codes};
use bundle_core::plan::retry::RetryPolicy;
use kube::Client;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use self::task::WatchTask;
use crate::budget::{Budget, Pool, Share};
use crate::clients::cluster::ServiceAccount;
use crate::reconcile::api::discovery::Kind;
use crate::reconcile::api::object::ObservedObject;
use crate::reconcile::drift::states::InstalledStates;

/// Time limit for the first list of a watch. If the list takes longer, the installation fails.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// The identity of one watch: ServiceAccount, kind and namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::reconcile) struct WatchKey {
    pub(in crate::reconcile) account: ServiceAccount,
    pub(in crate::reconcile) kind: Kind,
    /// Namespace of the watch. `None` means all namespaces.
    pub(in crate::reconcile) namespace: Option<String>,
}

/// The progress of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WatchProgress {
    Listing,
    Synced,
    /// The watch reports no events, because the first list or several consecutive attempts have
    /// failed.
    Failed {
        why: String,
        /// True if the watch has listed its objects before the failure.
        has_listed: bool,
    },
}

/// The names of the BundleDeployments that use a watch.
type WatchUsers = Arc<Mutex<HashSet<String>>>;

/// The existing objects that a watch has reported, by object key. Contains only objects that an
/// inventory records.
type ObservedTable = Arc<Mutex<HashMap<String, ObservedObject>>>;

struct Watch {
    users: WatchUsers,
    table: ObservedTable,
    progress: watch::Receiver<WatchProgress>,
    task: AbortHandle,
    /// The slot of the requester whose BundleDeployment opened the watch.
    _slot: Share,
}

impl Watch {
    /// Removes `deployment` from the users of the watch. Also removes objects from the table that
    /// no inventory records any more. Returns true if the watch has no users left.
    fn remove_user(&self, deployment: &str, states: &InstalledStates) -> bool {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if users.remove(deployment) && !users.is_empty() {
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            states.retain_recorded(&mut table);
        }
        users.is_empty()
    }

    fn has_users(&self) -> bool {
        let users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        !users.is_empty()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// All watches of installed objects in this process.
pub(in crate::reconcile) struct Watches {
    states: Arc<InstalledStates>,
    slots: Pool,
    open: Mutex<HashMap<WatchKey, Watch>>,
}

/// The name of a BundleDeployment that uses watches, and the requester of its template.
#[derive(Debug, Clone, Copy)]
pub(in crate::reconcile) struct WatchUser<'a> {
    pub(in crate::reconcile) deployment: &'a str,
    pub(in crate::reconcile) requester: &'a str,
}

/// The reason why watches could not be opened.
#[derive(Debug, thiserror::Error)]
pub(in crate::reconcile) enum WatchError {
    #[error(
        "cannot watch {kind}{place} as {}, which requires verbs list and watch: {why}",
        account.user_name()
    )]
    Failed {
        kind: String,
        place: String,
        account: ServiceAccount,
        why: String,
    },
    #[error(
        "the objects need {wanted} more watches, and requester {requester:?} can have {most} (all requesters together {capacity}): let the ServiceAccount list and watch the kinds in all namespaces, which needs one watch for each kind, or use fewer namespaces and ServiceAccounts"
    )]
    TooMany {
        wanted: usize,
        requester: String,
        most: u64,
        capacity: u64,
    },
}

impl WatchError {
    pub(in crate::reconcile) fn failed(subject: &WatchKey, why: String) -> Self {
        let namespace = subject.namespace.as_ref();
        Self::Failed {
            kind: subject.kind.resource.plural.clone(),
            place: namespace
                .map(|namespace| format!(" in namespace {namespace}"))
                .unwrap_or_default(),
            account: subject.account.clone(),
            why,
        }
    }

    pub(in crate::reconcile) fn code(&self) -> Code {
        match self {
            Self::Failed { .. } => codes::install::NOT_WATCHED,
            Self::TooMany { .. } => codes::install::TOO_MANY_WATCHES,
        }
    }

    pub(in crate::reconcile) fn retry(&self) -> RetryPolicy {
        match self {
            Self::Failed { .. } => RetryPolicy::Soon,
            Self::TooMany { .. } => RetryPolicy::Slowly,
        }
    }
}

impl Watches {
    /// Creates an empty set of watches. `slots` limits the number of watches.
    pub(in crate::reconcile) fn new(states: Arc<InstalledStates>, slots: Pool) -> Self {
        Self {
            states,
            slots,
            open: Mutex::default(),
        }
    }

    /// Opens the `wanted` watches for `user`, and waits until each watch has listed its objects. If
    /// `only` is true, removes `user` from all other watches. If the limit of the requester does
    /// not allow all wanted watches, opens no watch and fails.
    ///
    /// Fails if a watch has failed or its first list times out. After this error, `user` no longer
    /// uses the failed watch. There is one exception: if `user` used the watch before and the watch
    /// has listed its objects before, `user` keeps the watch. This watch can recover. Until then,
    /// [`Self::watch_failure`] reports the failure.
    pub(in crate::reconcile) async fn keep(
        &self,
        user: WatchUser<'_>,
        wanted: &HashSet<WatchKey>,
        only: bool,
        client: &Client,
    ) -> Result<(), WatchError> {
        let deployment = user.deployment;
        let mut waiting = Vec::new();
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.retain(|subject, watch| {
                if wanted.contains(subject) {
                    return true;
                }
                if only {
                    return !watch.remove_user(deployment, &self.states);
                }
                watch.has_users()
            });
            let missing = wanted.iter().filter(|subject| !open.contains_key(subject));
            let missing: Vec<_> = missing.cloned().collect();
            let slots = self.slots(user.requester, missing.len())?;
            for (subject, slot) in missing.into_iter().zip(slots) {
                let watch = self.start(&subject, client, slot);
                open.insert(subject, watch);
            }
            for (subject, watch) in open.iter().filter(|(subject, _)| wanted.contains(subject)) {
                let is_new = watch
                    .users
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(deployment.to_owned());
                waiting.push((subject.clone(), watch.progress.clone(), is_new));
            }
        }
        for (subject, mut progress, is_new) in waiting {
            let reached = tokio::time::timeout(
                FIRST_LIST_TIMEOUT,
                progress.wait_for(|progress| *progress != WatchProgress::Listing),
            )
            .await;
            let (why, has_listed) = match reached {
                Ok(Ok(progress)) => match &*progress {
                    WatchProgress::Failed { why, has_listed } => (why.clone(), *has_listed),
                    _ => continue,
                },
                Ok(Err(_)) => ("the watch ended".to_owned(), false),
                Err(_) => {
                    let seconds = FIRST_LIST_TIMEOUT.as_secs();
                    (format!("no answer within {seconds} s"), false)
                }
            };
            if is_new || !has_listed {
                self.leave(&subject, deployment);
            }
            return Err(WatchError::failed(&subject, why));
        }
        Ok(())
    }

    /// Removes `deployment` from the users of all watches. Closes the watches that no other
    /// BundleDeployment uses.
    pub(in crate::reconcile) fn remove_user(&self, deployment: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, watch| !watch.remove_user(deployment, &self.states));
    }

    /// Returns the failure of a watch of `deployment`, if one of its watches has failed. Drift can
    /// be missed until that watch recovers. Returns `None` if all watches of `deployment` work.
    pub(in crate::reconcile) fn watch_failure(&self, deployment: &str) -> Option<String> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().find_map(|(subject, watch)| {
            let used = watch
                .users
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(deployment);
            match &*watch.progress.borrow() {
                WatchProgress::Failed { why, .. } if used => Some(format!(
                    "cannot watch {} as {}: {why}",
                    subject.kind.resource.plural,
                    subject.account.user_name()
                )),
                _ => None,
            }
        })
    }

    /// Returns the objects of `deployment` that the watches have reported. The result contains only
    /// objects whose uid the inventory records.
    pub(in crate::reconcile) fn observed_objects(
        &self,
        deployment: &str,
    ) -> BTreeMap<String, ObservedObject> {
        let inventory = self.states.inventory(deployment);
        let mut all = BTreeMap::new();
        self.with_tables(deployment, |table| {
            // A table contains the objects of many BundleDeployments, and an inventory can contain
            // objects of many kinds. The smaller of the two is searched.
            let reported: Vec<_> = if table.len() <= inventory.len() {
                table.iter().collect()
            } else {
                let recorded = inventory.objects();
                recorded
                    .filter_map(|(key, _)| table.get_key_value(key))
                    .collect()
            };
            let owned = reported
                .into_iter()
                .filter(|(key, seen)| inventory.owns(key, &seen.uid));
            all.extend(owned.map(|(key, seen)| (key.clone(), seen.clone())));
        });
        all
    }

    /// Returns true if a watch of `deployment` reports its object `key`
    /// ([`Self::observed_objects`]).
    pub(in crate::reconcile) fn observes(&self, deployment: &str, key: &str) -> bool {
        let mut is_observed = false;
        self.with_tables(deployment, |table| {
            is_observed |= table
                .get(key)
                .is_some_and(|seen| self.states.owns(deployment, key, &seen.uid));
        });
        is_observed
    }

    /// Like [`Self::observed_objects`], but returns only objects with the object keys `keys`.
    pub(in crate::reconcile) fn observed_among<'k>(
        &self,
        deployment: &str,
        keys: &(impl Iterator<Item = &'k str> + Clone),
    ) -> BTreeMap<String, ObservedObject> {
        let mut all = BTreeMap::new();
        self.with_tables(deployment, |table| {
            all.extend(
                keys.clone()
                    .filter_map(|key| table.get_key_value(key))
                    .filter(|(key, seen)| self.states.owns(deployment, key, &seen.uid))
                    .map(|(key, seen)| (key.clone(), seen.clone())),
            );
        });
        all
    }

    /// Calls `read` with the table of reported objects of each watch that `deployment` uses.
    fn with_tables(
        &self,
        deployment: &str,
        mut read: impl FnMut(&HashMap<String, ObservedObject>),
    ) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        for watch in open.values() {
            let used = watch
                .users
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(deployment);
            if used {
                read(&watch.table.lock().unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Removes `deployment` from the users of one watch. Closes the watch if no other
    /// BundleDeployment uses it.
    fn leave(&self, subject: &WatchKey, deployment: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let is_unused = open
            .get(subject)
            .is_some_and(|watch| watch.remove_user(deployment, &self.states));
        if is_unused {
            open.remove(subject);
        }
    }

    /// Returns slots for `count` further watches of `requester`. Fails without a wait if not enough
    /// slots are free.
    fn slots(&self, requester: &str, count: usize) -> Result<Vec<Share>, WatchError> {
        let caps = Budget::half(&self.slots, requester);
        let most = caps.first().map_or(0, |cap| cap.limit);
        let slots: Option<Vec<_>> = (0..count)
            .map(|_| self.slots.try_take(1, caps.clone()))
            .collect();
        slots.ok_or_else(|| WatchError::TooMany {
            wanted: count,
            requester: requester.to_owned(),
            most,
            capacity: self.slots.capacity(),
        })
    }

    fn start(&self, subject: &WatchKey, client: &Client, slot: Share) -> Watch {
        let users = WatchUsers::default();
        let table = ObservedTable::default();
        let (sender, progress) = watch::channel(WatchProgress::Listing);
        let task = WatchTask {
            subject: subject.clone(),
            users: users.clone(),
            table: table.clone(),
            states: self.states.clone(),
            progress: sender,
        };
        let task = tokio::spawn(task.run(client.clone())).abort_handle();
        Watch {
            users,
            table,
            progress,
            task,
            _slot: slot,
        }
    }
}

#[cfg(test)]
mod tests;
