//! Watches all objects of one kind with few objects, and returns a snapshot after each change.
//! After a connection error, the watch continues.

use std::collections::BTreeMap;
use std::sync::Arc;

use bundle_api::names::{GROUP, VERSION};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use crate::clients::cluster::watch_events;

/// The `spec` of all objects by name. The value is `null` for an object without `spec`.
pub(super) type Specs = BTreeMap<String, Arc<Value>>;

/// The watch, and the objects that it has reported. The objects are untyped, so that an invalid
/// object does not stop the watch and is not omitted.
pub(super) struct Follower {
    events: BoxStream<'static, watcher::Result<Event<DynamicObject>>>,
    kind: &'static str,
    specs: Specs,
    /// The objects of a list that is not complete yet. `None` if no list is in progress.
    listing: Option<Specs>,
}

impl Follower {
    pub(super) fn new(client: Client, kind: &'static str, plural: &'static str) -> Self {
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), plural);
        let api: Api<DynamicObject> = Api::all_with(client, &resource);
        let events = watch_events(api, watcher::Config::default()).boxed();
        Self::from_events(kind, events)
    }

    fn from_events(
        kind: &'static str,
        events: BoxStream<'static, watcher::Result<Event<DynamicObject>>>,
    ) -> Self {
        Self {
            events,
            kind,
            specs: Specs::new(),
            listing: None,
        }
    }

    /// Waits for the next snapshot, and returns it. This function is cancel-safe.
    pub(super) async fn next(&mut self) -> Specs {
        loop {
            match self.events.next().await {
                Some(Ok(event)) => {
                    if self.take(event) {
                        return self.specs.clone();
                    }
                }
                Some(Err(error)) => tracing::warn!(
                    kind = self.kind,
                    error = crate::chain(&error),
                    "the watch was interrupted; known objects stay in use"
                ),
                // The watch never ends, so this case does not occur.
                None => std::future::pending().await,
            }
        }
    }

    /// Evaluates a watch event. Returns true if the snapshot has changed.
    fn take(&mut self, event: Event<DynamicObject>) -> bool {
        match event {
            Event::Init => self.listing = Some(Specs::new()),
            Event::InitApply(item) => {
                let (name, spec) = read(item);
                if let Some(listing) = &mut self.listing {
                    listing.insert(name, spec);
                }
            }
            Event::InitDone => {
                self.specs = self.listing.take().unwrap_or_default();
                return true;
            }
            Event::Apply(item) => {
                let (name, spec) = read(item);
                let same = self.specs.get(&name) == Some(&spec);
                self.specs.insert(name, spec);
                return !same;
            }
            Event::Delete(item) => return self.specs.remove(&item.name_any()).is_some(),
        }
        false
    }
}

fn read(mut item: DynamicObject) -> (String, Arc<Value>) {
    let spec = item.data.get_mut("spec").map(Value::take);
    (item.name_any(), Arc::new(spec.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use serde_json::{from_value, json};

    use super::*;

    fn item(value: Value) -> DynamicObject {
        from_value(value).unwrap()
    }

    fn class(name: &str, provisioner: &str) -> DynamicObject {
        item(json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass",
            "metadata": { "name": name, "generation": 1 },
            "spec": { "provisioner": provisioner },
            "status": { "conditions": [] },
        }))
    }

    async fn last(events: Vec<Event<DynamicObject>>) -> Specs {
        let events = stream::iter(events.into_iter().map(Ok)).boxed();
        let mut follower = Follower::from_events("ProvisionerClass", events);
        let mut seen = follower.next().await;
        while let Some(next) = futures::FutureExt::now_or_never(follower.next()) {
            seen = next;
        }
        seen
    }

    #[tokio::test]
    async fn snapshot_has_changes_after_the_first_list() {
        let specs = last(vec![
            Event::Init,
            Event::InitApply(class("a", "one")),
            Event::InitApply(class("b", "one")),
            Event::InitDone,
            Event::Apply(class("a", "two")),
            Event::Delete(class("b", "one")),
            Event::Apply(class("c", "one")),
        ])
        .await;
        assert_eq!(specs.keys().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(*specs["a"], json!({ "provisioner": "two" }));
    }

    #[tokio::test]
    async fn complete_list_removes_deleted_objects() {
        let begun = last(vec![
            Event::Init,
            Event::InitApply(class("a", "one")),
            Event::InitDone,
            Event::Init,
        ])
        .await;
        assert!(begun.contains_key("a"));
        let done = last(vec![
            Event::Init,
            Event::InitApply(class("a", "one")),
            Event::InitDone,
            Event::Init,
            Event::InitApply(class("b", "one")),
            Event::InitDone,
        ])
        .await;
        assert_eq!(done.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[tokio::test]
    async fn invalid_object_is_kept_and_does_not_stop_the_watch() {
        let broken = item(json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass",
            "metadata": { "name": "broken" },
        }));
        let specs = last(vec![
            Event::Init,
            Event::InitApply(broken),
            Event::InitApply(class("a", "one")),
            Event::InitDone,
        ])
        .await;
        assert!(specs["broken"].is_null());
        assert!(!specs["a"].is_null());
    }
}
