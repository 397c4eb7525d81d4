//! Events of bundle-webhook. The reason of a Warning is the diagnostic code of the failure in a
//! condition.

use bundle_core::diagnostic::{Code, all_codes};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};

use super::Cluster;

/// Namespace of Events about cluster-scoped objects.
const NAMESPACE: &str = "default";
/// Maximum number of Events that are read.
const LIMIT: u32 = 500;
/// Suffix of a text that was truncated to fit into an Event.
const CUT: &str = " …";

impl Cluster {
    /// Returns the code of the failure that a condition of the object describes as `message`.
    /// Returns `None` if no such Event exists yet, or if the user has no permission to list Events.
    pub(crate) async fn failure_code(&self, kind: &str, name: &str, message: &str) -> Option<Code> {
        let selector =
            format!("involvedObject.kind={kind},involvedObject.name={name},type=Warning");
        self.events(&selector).await?.iter().find_map(|event| {
            let text = event.message.as_deref()?;
            let text = text.strip_suffix(CUT).unwrap_or(text);
            (!text.is_empty() && message.contains(text))
                .then(|| code(event.reason.as_deref()?))
                .flatten()
        })
    }

    /// Returns the Events about cluster-scoped objects that a field selector matches. Returns
    /// `None` if the user has no permission to list Events.
    pub(crate) async fn events(&self, selector: &str) -> Option<Vec<Event>> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), NAMESPACE);
        let parameters = ListParams::default().fields(selector).limit(LIMIT);
        let list = self.ask(api.list(&parameters)).await.ok()?;
        Some(list.items)
    }
}

/// Returns the code with this identifier.
fn code(id: &str) -> Option<Code> {
    all_codes().find(|code| code.id == id).copied()
}
