//! The kinds that mutating webhooks and MutatingAdmissionPolicies in the cluster match.

use std::sync::Arc;
use std::time::Duration;

use bundle_core::object::GroupKind;
use bundle_core::rights::MutatedKinds;
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use moka::future::Cache;

use crate::reconcile::api::discovery::Apis;
use crate::reconcile::api::object;

/// Maximum number of registrations on one page of a list.
const PAGE_SIZE: u32 = 50;

/// Time for which the registrations are not read again. A new registration also reaches the
/// admission of the API server with a delay.
const TTL: Duration = Duration::from_secs(1);

/// The kinds that the registered mutating webhooks and policies match. The registrations are read at
/// most once in a second, because a burst of installations needs them for each installation.
pub(in crate::reconcile) struct RegisteredMutators(Cache<(), Arc<MutatedKinds>>);

impl Default for RegisteredMutators {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(1).time_to_live(TTL);
        Self(cache.build())
    }
}

impl RegisteredMutators {
    /// Returns the matched kinds. The pod reads the registrations with its own identity, and
    /// concurrent calls share one read. If the registrations cannot be read, every kind counts as
    /// matched, and the next call reads them again.
    pub(in crate::reconcile) async fn kinds(&self, apis: &Apis, own: &Client) -> Arc<MutatedKinds> {
        let reading = async { read(apis, own).await.map(Arc::new) };
        match self.0.try_get_with((), reading).await {
            Ok(kinds) => kinds,
            Err(error) => {
                tracing::warn!(
                    error = object::error_message(&error),
                    "cannot read the mutating registrations: every object is compared by dry runs"
                );
                Arc::new(MutatedKinds::unknown())
            }
        }
    }
}

async fn read(apis: &Apis, own: &Client) -> Result<MutatedKinds, kube::Error> {
    let mut kinds = MutatedKinds::default();
    for name in ["MutatingWebhookConfiguration", "MutatingAdmissionPolicy"] {
        let kind = GroupKind::new("admissionregistration.k8s.io", name);
        // Older API servers do not serve MutatingAdmissionPolicies.
        let Some(kind) = apis.preferred(&kind).await? else {
            continue;
        };
        let api = object::api::<DynamicObject>(own, &kind, None)?;
        let mut parameters = ListParams::default().limit(PAGE_SIZE);
        loop {
            let page = api.list(&parameters).await?;
            for registration in page.items {
                let mut value =
                    serde_json::to_value(registration).map_err(kube::Error::SerdeError)?;
                // Items of a list do not contain their kind, so the kind is added.
                value["kind"] = name.into();
                kinds.add(&value);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => break,
            }
        }
    }
    Ok(kinds)
}
