//! Events of bundle-webhook. The reason of a Warning is the diagnostic code of a failure that a condition describes.

use bundle_core::diagnostic::{Code, all_codes};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};

use super::Cluster;

/// Events about cluster-scoped objects are kept in this namespace.
const NAMESPACE: &str = "default";
/// More Events are not read.
const LIMIT: u32 = 500;
/// Mark of a text that was cut to fit into an Event.
const CUT: &str = " …";

impl Cluster {
    /// The code of the failure that a condition of the object describes as `message`. Returns `None` where no Event says so (yet), or where
    /// the caller may not list Events.
    ///
    /// Anybody who may create Events in the namespace can write such an Event: the code decides only how a command ends.
    pub(crate) async fn failure_code(&self, kind: &str, name: &str, message: &str) -> Option<Code> {
        let selector =
            format!("involvedObject.kind={kind},involvedObject.name={name},type=Warning");
        self.events(&selector).await?.iter().find_map(|event| {
            let told = event.message.as_deref()?;
            let told = told.strip_suffix(CUT).unwrap_or(told);
            (!told.is_empty() && message.contains(told))
                .then(|| code(event.reason.as_deref()?))
                .flatten()
        })
    }

    /// Events about cluster-scoped objects that a field selector matches; `None` where the caller may not list them.
    pub(crate) async fn events(&self, selector: &str) -> Option<Vec<Event>> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), NAMESPACE);
        let parameters = ListParams::default().fields(selector).limit(LIMIT);
        let list = self.ask(api.list(&parameters)).await.ok()?;
        Some(list.items)
    }
}

/// The code of this identifier.
fn code(id: &str) -> Option<Code> {
    all_codes().find(|code| code.id == id).copied()
}
