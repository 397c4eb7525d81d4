//! Waiting for an object to become what is asked for, by watching it.

use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use futures::TryStreamExt as _;
use kube::Resource;
use kube::api::{Api, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;

use super::Cluster;
use crate::failure::{Failure, Outcome};

/// How long the server keeps one watch open; then it is asked again.
const WATCH_SECONDS: u32 = 60;
/// Pause before the question is asked again about an object that does not change: what else it depends on may have changed.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// `true` if to wait, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    No,
    /// Until it is so.
    Forever,
    /// At most this long.
    AtMost(Duration),
}

/// What the question says about the object as it is now.
pub(crate) enum Seen {
    /// It is as asked.
    Done,
    /// Not yet.
    NotYet,
}

impl Cluster {
    /// Watches the object `name` until `question` says that it is done. `None` is the object that is not there.
    /// When the time is up, `late` words the finding.
    pub(crate) async fn wait_for<K>(
        &self,
        api: &Api<K>,
        name: &str,
        wait: Wait,
        mut question: impl AsyncFnMut(Option<&K>) -> Outcome<Seen>,
        late: impl FnOnce(Duration) -> Finding,
    ) -> Outcome
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let watching = self.watch_until(api, name, &mut question);
        match wait {
            Wait::No => Ok(()),
            Wait::Forever => watching.await,
            Wait::AtMost(limit) => match tokio::time::timeout(limit, watching).await {
                Ok(done) => done,
                Err(_) => Err(late(limit).into()),
            },
        }
    }

    async fn watch_until<K>(
        &self,
        api: &Api<K>,
        name: &str,
        question: &mut impl AsyncFnMut(Option<&K>) -> Outcome<Seen>,
    ) -> Outcome
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
    {
        loop {
            let parameters =
                kube::api::ListParams::default().fields(&format!("metadata.name={name}"));
            let list = self.ask(api.list(&parameters)).await?;
            let mut object = list.items.into_iter().next();
            if let Seen::Done = question(object.as_ref()).await? {
                return Ok(());
            }
            let version = list.metadata.resource_version.unwrap_or_default();
            let watch = WatchParams::default()
                .fields(&format!("metadata.name={name}"))
                .timeout(WATCH_SECONDS);
            let stream = self.ask(api.watch(&watch, &version)).await?;
            let mut stream = std::pin::pin!(stream);
            // A watch that ends or breaks is opened again: only the question and the deadline end the wait.
            loop {
                match tokio::time::timeout(ASK_AGAIN, stream.try_next()).await {
                    Ok(Ok(Some(WatchEvent::Added(now) | WatchEvent::Modified(now)))) => {
                        object = Some(now);
                    }
                    Ok(Ok(Some(WatchEvent::Deleted(_)))) => object = None,
                    Ok(Ok(Some(WatchEvent::Bookmark(_)))) => continue,
                    Ok(_) => break,
                    Err(_) => {}
                }
                if let Seen::Done = question(object.as_ref()).await? {
                    return Ok(());
                }
            }
        }
    }
}

/// The wait took too long.
pub(crate) fn late(what: &str, limit: Duration) -> Finding {
    Finding::error(
        codes::cluster::WAIT_TIMEOUT,
        format!("{what} within {limit:?}"),
    )
}

/// Its object is gone while it was waited for.
pub(crate) fn gone(what: &str) -> Failure {
    Finding::error(
        codes::cluster::DELETED_MEANWHILE,
        format!("{what} was deleted while it was waited for"),
    )
    .into()
}
