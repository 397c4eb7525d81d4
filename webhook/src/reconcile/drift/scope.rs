//! Computes the watches that a set of objects needs. If the installing ServiceAccount may watch a
//! kind in all namespaces, the kind needs one watch. Otherwise the kind needs one watch for each
//! namespace.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use bundle_cluster::access;
use bundle_core::rights::AccessReview;
use futures::StreamExt as _;
use kube::Client;
use moka::future::Cache;

use crate::budget::CACHE_ENTRY;
use crate::clients::cluster::{ServiceAccount, with_missing_right};
use crate::reconcile::api::discovery::Kind;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::drift::watch::WatchKey;

/// Time for which the result of an access review is cached. A changed permission is effective at
/// the latest after this time.
const ANSWER_TTL: Duration = Duration::from_secs(300);
/// Maximum number of cached results of access reviews. This number is twice the maximum number of
/// watches at the default memory limit.
const MAX_ANSWERS: usize = 512;
/// Memory that the names of a ServiceAccount and a kind need, in bytes.
const KEY_BYTES: usize = 1 << 10;
/// Maximum memory that the cached results need, in bytes.
pub(in crate::reconcile) const MAX_BYTES: usize = MAX_ANSWERS * (CACHE_ENTRY + KEY_BYTES);

/// Cached results of access reviews. A result is true if the ServiceAccount can list and watch the
/// kind in all namespaces.
pub(in crate::reconcile) struct WatchPermissions {
    answers: Cache<(ServiceAccount, Kind), bool>,
}

impl Default for WatchPermissions {
    fn default() -> Self {
        Self {
            answers: Cache::builder()
                .max_capacity(MAX_ANSWERS as u64)
                .time_to_live(ANSWER_TTL)
                .build(),
        }
    }
}

impl WatchPermissions {
    /// Returns the watches that `items` need.
    pub(in crate::reconcile) async fn subjects<'a>(
        &self,
        client: &Client,
        account: &ServiceAccount,
        items: impl IntoIterator<Item = &'a PreparedObject>,
    ) -> Result<HashSet<WatchKey>, kube::Error> {
        let mut kinds = HashMap::<&Kind, BTreeSet<Option<&str>>>::new();
        for item in items {
            kinds
                .entry(&item.kind)
                .or_default()
                .insert(item.id.namespace.as_deref());
        }
        let subject = |kind: &Kind, namespace: Option<&str>| WatchKey {
            account: account.clone(),
            kind: kind.clone(),
            namespace: namespace.map(str::to_owned),
        };
        let mut answers = crate::reconcile::api::parallel::stream(kinds.into_iter().map(
            |(kind, namespaces)| async move {
                let everywhere = !kind.namespaced
                    || self.can_watch_all_namespaces(client, account, kind).await?;
                Ok::<_, kube::Error>((kind, namespaces, everywhere))
            },
        ));
        let mut subjects = HashSet::new();
        while let Some(answer) = answers.next().await {
            let (kind, namespaces, everywhere) = answer?;
            if everywhere {
                subjects.insert(subject(kind, None));
            } else {
                subjects.extend(
                    namespaces
                        .into_iter()
                        .map(|namespace| subject(kind, namespace)),
                );
            }
        }
        Ok(subjects)
    }

    /// Returns true if `account` has permission to list and watch `kind` in all namespaces.
    pub(in crate::reconcile) async fn can_watch_all_namespaces(
        &self,
        client: &Client,
        account: &ServiceAccount,
        kind: &Kind,
    ) -> Result<bool, kube::Error> {
        let key = (account.clone(), kind.clone());
        if let Some(answer) = self.answers.get(&key).await {
            return Ok(answer);
        }
        let mut allowed = true;
        for verb in ["list", "watch"] {
            let question = AccessReview::resource(
                verb,
                &kind.resource.group,
                &kind.resource.plural,
                None,
                None,
            );
            let answer = access::has_own_permission(client, &question).await;
            allowed &= answer.map_err(|error| with_missing_right(error, account))?;
        }
        self.answers.insert(key, allowed).await;
        Ok(allowed)
    }
}
