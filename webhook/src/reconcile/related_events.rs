//! Events of objects that name a BundleDeployment: Bundles with a BundleDeployment as their
//! controller, and BundleApprovals. A user who can write such an object can name any
//! BundleDeployment. Therefore `bundle_core::plan::rate` limits the rate of reconciles that these
//! events start.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bundle_api::names;
use bundle_core::names::KubeName;
use bundle_core::plan::rate::{EventRate, ReconcileStart};
use kube::api::ObjectMeta;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Maximum number of BundleDeployments with a rate. When this number is reached, a new rate
/// replaces the rate that needs the shortest time until it allows a full burst again. The only
/// effect is additional reconciles.
const MAX_RATES: usize = 10_000;

/// The rates of reconciles that events of Bundles and BundleApprovals start, by name of the
/// BundleDeployment.
pub(in crate::reconcile) struct RelatedEvents {
    start: Instant,
    rates: Mutex<HashMap<String, EventRate>>,
    wake: mpsc::UnboundedSender<String>,
}

impl RelatedEvents {
    /// Creates an empty value. `wake` receives the name of each BundleDeployment whose delayed
    /// reconcile is due.
    pub(in crate::reconcile) fn new(wake: mpsc::UnboundedSender<String>) -> Self {
        Self {
            start: Instant::now(),
            rates: Mutex::default(),
            wake,
        }
    }

    /// Counts an event. Returns true if a reconcile of `deployment` can start now. Otherwise
    /// schedules a later reconcile, unless one is already scheduled.
    pub(in crate::reconcile) fn can_start(&self, deployment: &str) -> bool {
        let start = {
            let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
            if rates.len() >= MAX_RATES && !rates.contains_key(deployment) {
                remove_one(&mut rates);
            }
            let rate = rates.entry(deployment.to_owned()).or_default();
            let (next, start) = rate.event(self.start.elapsed());
            *rate = next;
            start
        };
        if let ReconcileStart::After(delay) = start {
            let (name, wake) = (deployment.to_owned(), self.wake.clone());
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                // Sending fails only when the controllers have ended.
                wake.send(name).ok();
            });
        }
        start == ReconcileStart::Now
    }
}

/// Removes the rate that needs the shortest time until it allows a full burst again.
fn remove_one(rates: &mut HashMap<String, EventRate>) {
    let first = rates.iter().min_by_key(|(_, rate)| rate.full_at());
    if let Some(name) = first.map(|(name, _)| name.clone()) {
        rates.remove(&name);
    }
}

/// Returns the name of the controller in the owner references. Returns `None` if the controller is
/// not a BundleDeployment, or if its name is invalid. API servers do not check this name, so it can
/// have any length.
pub(in crate::reconcile) fn controller(metadata: &ObjectMeta) -> Option<KubeName> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let controller = owners.iter().find(|owner| owner.controller == Some(true))?;
    if controller.api_version != names::API_VERSION
        || controller.kind != crate::reconcile::DEPLOYMENT
    {
        return None;
    }
    controller.name.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_events_of_related_objects_start_few_reconciles_and_none_is_lost() {
        let (wake, mut woken) = mpsc::unbounded_channel();
        let events = RelatedEvents::new(wake);
        let started = (0..1_000).filter(|_| events.can_start("web")).count();
        assert_eq!(started, 20);
        // The rate of BundleDeployment `web` does not limit BundleDeployment `api`.
        assert!(events.can_start("api"));
        assert!(woken.try_recv().is_err());
        assert_eq!(woken.recv().await.unwrap(), "web");
        assert!(!events.can_start("web"));
        assert_eq!(woken.recv().await.unwrap(), "web");
        assert!(woken.try_recv().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_name_many_deployments_do_not_reset_the_rate_of_another() {
        let (wake, _woken) = mpsc::unbounded_channel();
        let events = RelatedEvents::new(wake);
        while events.can_start("web") {}
        for number in 0..MAX_RATES + 10 {
            assert!(events.can_start(&format!("other-{number}")));
        }
        assert!(!events.can_start("web"));
        assert_eq!(events.rates.lock().unwrap().len(), MAX_RATES);
    }

    #[test]
    fn only_a_controller_of_the_right_kind_with_a_valid_name_is_named() {
        let metadata = |kind: &str, version: &str, name: &str, controller: bool| {
            let owner = serde_json::json!({"ownerReferences": [{
                "apiVersion": version, "kind": kind, "name": name, "uid": "u",
                "controller": controller,
            }]});
            serde_json::from_value::<ObjectMeta>(owner).unwrap()
        };
        for (kind, version, is_controller, expected) in [
            ("BundleDeployment", names::API_VERSION, true, Some("web")),
            ("BundleDeployment", names::API_VERSION, false, None),
            ("BundleDeployment", "example.com/v1", true, None),
            ("Bundle", names::API_VERSION, true, None),
        ] {
            let metadata = metadata(kind, version, "web", is_controller);
            let found = controller(&metadata);
            assert_eq!(found.as_deref(), expected, "{kind} {version}");
        }
        let long = "x".repeat(254);
        for name in [long.as_str(), "", "Web", "web?watch=true"] {
            let metadata = metadata("BundleDeployment", names::API_VERSION, name, true);
            assert_eq!(controller(&metadata), None, "{name}");
        }
        assert_eq!(controller(&ObjectMeta::default()), None);
    }
}
