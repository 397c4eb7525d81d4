//! Detects workloads whose `spec.replicas` is set by another field manager or an autoscaler.
//! `bundle_core::plan::scaling` contains the rule.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bundle_cluster::ObjectUrl;
use bundle_core::plan::ignore::Rule;
use bundle_core::plan::scaling::{self, ReplicasOwner};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Client;
use kube::api::{DynamicObject, ListParams};
use kube::client::Body;
use kube::core::discovery::ApiResource;
use serde_json::Value;

use crate::reconcile::api::{object, whole};
use crate::reconcile::content::objects::PreparedObject;

/// Maximum number of HorizontalPodAutoscalers that are read in one namespace.
const MAX_AUTOSCALERS: u32 = 100;

/// Objects whose `spec.replicas` was not applied in one reconcile. Contains a warning for each
/// object, by object key.
#[derive(Debug, Default)]
pub(in crate::reconcile) struct ScaledObjects(Mutex<BTreeMap<String, String>>);

impl ScaledObjects {
    /// Returns true if `spec.replicas` of this object was not applied.
    pub(in crate::reconcile) fn has(&self, key: &str) -> bool {
        self.warnings_by_key().contains_key(key)
    }

    /// Returns a warning for each object whose `spec.replicas` was not applied.
    pub(in crate::reconcile) fn warnings(&self) -> Vec<String> {
        self.warnings_by_key().values().cloned().collect()
    }

    fn warnings_by_key(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if another field manager or an autoscaler sets `spec.replicas` of `live`, and
    /// stores a warning in this case. If an autoscaler can be the owner of this field, but the
    /// HorizontalPodAutoscalers cannot be read, also returns true. The caller must check that
    /// `item` sets `spec.replicas`. `rules` are the ignore rules that match `item`. If no rule
    /// names `spec.replicas`, the warning proposes a rule for this field.
    pub(in crate::reconcile) async fn is_scaled_by_other(
        &self,
        client: &Client,
        item: &PreparedObject,
        live: &DynamicObject,
        rules: &[&Rule],
    ) -> bool {
        let owner = match scaling::replicas_owner(object::entries(&live.metadata)) {
            None => return false,
            Some(ReplicasOwner::Manager(name)) => format!("field manager {name}"),
            Some(ReplicasOwner::Autoscaler) => match autoscaler(client, item).await {
                Ok(None) => return false,
                Ok(Some(name)) => format!("HorizontalPodAutoscaler {name}"),
                Err(error) => {
                    tracing::debug!(
                        object = item.key,
                        error = object::error_message(&error),
                        "cannot list HorizontalPodAutoscalers"
                    );
                    "a HorizontalPodAutoscaler".to_owned()
                }
            },
        };
        let sentence = warning(item, &owner, rules);
        self.warnings_by_key().insert(item.key.clone(), sentence);
        true
    }
}

/// Returns the warning about an object whose `spec.replicas` is set by `owner`.
fn warning(item: &PreparedObject, owner: &str, rules: &[&Rule]) -> String {
    let sentence = format!(
        "{}: spec.replicas is not applied, because {owner} sets it",
        item.key
    );
    let is_ruled = rules
        .iter()
        .any(|rule| rule.fields.iter().any(|field| field == scaling::REPLICAS));
    if is_ruled {
        return sentence;
    }
    let rule = scaling::ignore_rule(&item.id);
    format!("{sentence}; to exclude the field from the first apply too, set {rule}")
}

/// Returns the name of the HorizontalPodAutoscaler that scales `item`. If the list contains only
/// some of the HorizontalPodAutoscalers and none of these scales `item`, returns a placeholder.
async fn autoscaler(client: &Client, item: &PreparedObject) -> Result<Option<String>, kube::Error> {
    let resource = ApiResource::erase::<HorizontalPodAutoscaler>(&());
    let namespace = item.id.namespace.as_deref();
    let parameters = ListParams::default().limit(MAX_AUTOSCALERS);
    let request = ObjectUrl::parse(&resource, namespace, &item.id.name)
        .and_then(|url| url.requests().list(&parameters))
        .map_err(kube::Error::BuildRequest)?;
    let answer = client.send(request.map(Body::from)).await?;
    let list = whole::receive(answer).await?;
    let items = list.map(|list| list.data["items"].clone());
    let items = items.as_ref().and_then(Value::as_array);
    let items = items.map_or(&[][..], Vec::as_slice);
    match scaling::scaler_of(items, &item.id) {
        Some(name) => Ok(Some(name.to_owned())),
        None if items.len() < MAX_AUTOSCALERS as usize => Ok(None),
        None => Ok(Some("(one of many)".to_owned())),
    }
}
