//! Certificates of the webhooks of operators. bundle-webhook issues these certificates when it
//! applies the objects. A preview assumes that the certificates in the cluster do not change.

use serde_json::Value;

/// Copies certificates and CA certificates from the `live` object to the `wanted` object.
pub(super) fn copy_certificates(wanted: &mut Value, live: &Value) {
    match wanted["kind"].as_str() {
        Some("Secret") => {
            if let (Value::Object(secret), Value::Object(_)) = (wanted, &live["data"]) {
                secret.insert("data".to_owned(), live["data"].clone());
                secret.remove("stringData");
            }
        }
        Some("CustomResourceDefinition") => {
            let client = "/spec/conversion/webhook/clientConfig";
            keep_authorities(wanted.pointer_mut(client), live.pointer(client));
        }
        _ => {
            let webhooks = wanted.get_mut("webhooks").and_then(Value::as_array_mut);
            for webhook in webhooks.into_iter().flatten() {
                let mut others = live["webhooks"].as_array().into_iter().flatten();
                let other = others.find(|other| other["name"] == webhook["name"]);
                let other = other.and_then(|other| other.get("clientConfig"));
                keep_authorities(webhook.get_mut("clientConfig"), other);
            }
        }
    }
}

fn keep_authorities(wanted: Option<&mut Value>, live: Option<&Value>) {
    let authorities = live.and_then(|live| live.get("caBundle"));
    if let (Some(Value::Object(wanted)), Some(authorities)) = (wanted, authorities) {
        wanted.insert("caBundle".to_owned(), authorities.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keeps_certificates_of_live_objects() {
        let definition = |client: &Value| json!({"kind": "CustomResourceDefinition", "spec": {"conversion": {"webhook": {"clientConfig": client}}}});
        let hooks = |webhooks: &Value| json!({"kind": "ValidatingWebhookConfiguration", "webhooks": webhooks});
        for (wanted, live, expected) in [
            (
                json!({"kind": "Secret", "stringData": {"tls.crt": ""}, "type": "a"}),
                json!({"kind": "Secret", "data": {"tls.crt": "Yw=="}, "type": "b"}),
                json!({"kind": "Secret", "data": {"tls.crt": "Yw=="}, "type": "a"}),
            ),
            (
                json!({"kind": "Secret", "data": {"tls.crt": ""}}),
                json!({"kind": "Secret"}),
                json!({"kind": "Secret", "data": {"tls.crt": ""}}),
            ),
            (
                definition(&json!({"service": {"path": "/new"}})),
                definition(&json!({"service": {"path": "/old"}, "caBundle": "Yw=="})),
                definition(&json!({"service": {"path": "/new"}, "caBundle": "Yw=="})),
            ),
            (
                hooks(
                    &json!([{"name": "new", "clientConfig": {}}, {"name": "a", "clientConfig": {}}]),
                ),
                hooks(&json!([{"name": "a", "clientConfig": {"caBundle": "Yw=="}}])),
                hooks(
                    &json!([{"name": "new", "clientConfig": {}}, {"name": "a", "clientConfig": {"caBundle": "Yw=="}}]),
                ),
            ),
        ] {
            let mut found = wanted.clone();
            copy_certificates(&mut found, &live);
            assert_eq!(found, expected, "{wanted}");
        }
    }
}
