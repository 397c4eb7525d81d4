//! The `caBundle` of our webhook configurations: compared, and set where it is not what API servers must trust.
//! Not here: any other field of them, which belongs to whoever deployed them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};

/// Why a registration could not be kept right.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The API server refused or was not to be reached.
    #[error("cannot {action} {kind}/{name}")]
    Api {
        /// `read` or `patch`.
        action: &'static str,
        /// Which of the two kinds.
        kind: String,
        /// Its name.
        name: String,
        /// Why.
        source: kube::Error,
    },
    /// Our own patch has a form that the library does not take.
    #[error("cannot write the patch of a registration")]
    Patch {
        /// Why.
        source: serde_json::Error,
    },
}

/// The two kinds.
pub(super) fn kinds() -> [ApiResource; 2] {
    [
        ApiResource::erase::<ValidatingWebhookConfiguration>(&()),
        ApiResource::erase::<MutatingWebhookConfiguration>(&()),
    ]
}

/// Sets `trusted` (PEM) in every webhook of the configurations of that name. One that is not there is left so:
/// then nobody asks us, which is the administrator's choice.
pub(super) async fn keep_right(
    client: &Client,
    name: &str,
    trusted: &str,
) -> Result<(), RegistrationError> {
    for kind in kinds() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let told = |action| {
            let kind = kind.kind.clone();
            move |source| RegistrationError::Api {
                action,
                kind,
                name: name.to_owned(),
                source,
            }
        };
        let Some(found) = api.get_opt(name).await.map_err(told("read"))? else {
            tracing::debug!(kind = kind.kind, name, "no such registration");
            continue;
        };
        let operations = corrections(&found.data, trusted);
        if operations.is_empty() {
            continue;
        }
        let patch: json_patch::Patch = serde_json::from_value(Value::Array(operations))
            .map_err(|source| RegistrationError::Patch { source })?;
        api.patch(name, &PatchParams::default(), &Patch::<()>::Json(patch))
            .await
            .map_err(told("patch"))?;
        tracing::info!(kind = kind.kind, name, "caBundle set");
    }
    Ok(())
}

/// A JSON patch: each webhook whose `caBundle` differs, by place, if the place still has its name.
fn corrections(configuration: &Value, trusted: &str) -> Vec<Value> {
    let wanted = STANDARD.encode(trusted);
    let webhooks = configuration["webhooks"].as_array();
    webhooks
        .into_iter()
        .flatten()
        .enumerate()
        .filter(|(_, webhook)| webhook["clientConfig"]["caBundle"] != wanted.as_str())
        .flat_map(|(place, webhook)| {
            [
                json!({ "op": "test", "path": format!("/webhooks/{place}/name"), "value": webhook["name"] }),
                json!({ "op": "add", "path": format!("/webhooks/{place}/clientConfig/caBundle"), "value": wanted }),
            ]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_set_and_only_if_it_is_still_where_it_was() {
        let configuration = json!({ "webhooks": [
            { "name": "right", "clientConfig": { "caBundle": STANDARD.encode("new") } },
            { "name": "old", "clientConfig": { "caBundle": STANDARD.encode("old") } },
            { "name": "cleared", "clientConfig": {} },
        ] });
        assert_eq!(
            Value::Array(corrections(&configuration, "new")),
            json!([
                { "op": "test", "path": "/webhooks/1/name", "value": "old" },
                { "op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "bmV3" },
                { "op": "test", "path": "/webhooks/2/name", "value": "cleared" },
                { "op": "add", "path": "/webhooks/2/clientConfig/caBundle", "value": "bmV3" },
            ])
        );
        assert_eq!(corrections(&json!({}), "new"), Vec::<Value>::new());
    }
}
