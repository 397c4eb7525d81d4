//! Events of bundle-webhook. The reason of a Warning Event is the diagnostic code of a failure. A
//! condition of the object contains the message of the failure.

use bundle_cluster::namespaced;
use bundle_core::diagnostic::{Code, all_codes};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ApiResource, DynamicObject, ListParams};

use super::Cluster;
use crate::failure::Outcome;

/// Namespace of Events about cluster-scoped objects.
pub(crate) const NAMESPACE: &str = "default";
/// Maximum number of Events that are read.
const LIMIT: u32 = 500;
/// Suffix of a text that was truncated to fit into an Event.
const TRUNCATION_SUFFIX: &str = " …";

impl Cluster {
    /// Returns the diagnostic code of a failure from the Warning Event of the same failure.
    /// `message` is the message of the failure in a condition of the object. Returns `None` if the
    /// Event does not exist yet, or if the user has no permission to list Events.
    pub(crate) async fn failure_code(&self, kind: &str, name: &str, message: &str) -> Option<Code> {
        let selector =
            format!("involvedObject.kind={kind},involvedObject.name={name},type=Warning");
        self.events(&selector).await?.iter().find_map(|event| {
            let text = event.message.as_deref()?;
            let text = text.strip_suffix(TRUNCATION_SUFFIX).unwrap_or(text);
            (!text.is_empty() && message.contains(text))
                .then(|| code(event.reason.as_deref()?))
                .flatten()
        })
    }

    /// Returns the Events about cluster-scoped objects that a field selector matches. Returns
    /// `None` if the user has no permission to list Events.
    pub(crate) async fn events(&self, selector: &str) -> Option<Vec<Event>> {
        self.events_in(NAMESPACE, selector).await.ok()
    }

    /// Returns the Events of a namespace that a field selector matches.
    pub(crate) async fn events_in(&self, namespace: &str, selector: &str) -> Outcome<Vec<Event>> {
        let kind = ApiResource::erase::<Event>(&());
        let parameters = ListParams::default().fields(selector).limit(LIMIT);
        let request = async {
            let api = namespaced::<DynamicObject>(&self.client, &kind, Some(namespace))?;
            api.list(&parameters).await
        };
        let list = self.send(request).await?;
        let events = list.items.into_iter();
        Ok(events.filter_map(|event| event.try_parse().ok()).collect())
    }
}

/// Returns the code with this identifier.
fn code(id: &str) -> Option<Code> {
    all_codes().find(|code| code.id == id).copied()
}
