//! The `clientConfig` of a webhook. The token is the last segment of its path. A JSON patch sets
//! the token and the certificate authority. Only the administrator changes other fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::identity::Identity;

/// Splits `https://host:port/path` before the path. A URL without a path has an empty path.
fn split_url(url: &str) -> (&str, &str) {
    let host = url.find("://").map_or(0, |scheme| scheme + 3);
    let path = url.get(host..).and_then(|rest| rest.find('/'));
    url.split_at(path.map_or(url.len(), |path| host + path))
}

/// Returns the path of a `clientConfig`, from `service` or from `url`.
fn path_of(client: &Value) -> &str {
    match client["url"].as_str() {
        Some(url) => split_url(url).1,
        None => client["service"]["path"].as_str().unwrap_or_default(),
    }
}

/// Returns the token of a `clientConfig`: the last segment of the path, if the previous segment is
/// `action`.
pub(super) fn token_of<'a>(client: &'a Value, action: &str) -> Option<&'a str> {
    let (before, token) = path_of(client).rsplit_once('/')?;
    before.rsplit('/').next().filter(|last| *last == action)?;
    Some(token)
}

/// Returns `path` with the segments `action` and `token` at its end. A prefix that the
/// administrator has set does not change.
fn with_token(path: &str, action: &str, token: &str) -> String {
    let path = path.trim_end_matches('/');
    let ends_with_action = |path: &str| path.rsplit('/').next() == Some(action);
    let prefix = match path.rsplit_once('/') {
        _ if ends_with_action(path) => path,
        Some((before, _)) if ends_with_action(before) => before,
        _ => &format!("{path}/{action}"),
    };
    format!("{prefix}/{token}")
}

/// Returns the JSON patch that sets the current token and the authority in each webhook of `object`
/// that calls this installation. The patch is empty if no change is necessary. The patch fails if
/// the object has changed after it was read.
pub(super) fn corrections(
    object: &Value,
    resource_version: &str,
    action: &str,
    identity: &Identity<'_>,
) -> Vec<Value> {
    let authority = STANDARD.encode(identity.trusted);
    let mut operations = Vec::new();
    let webhooks = object["webhooks"].as_array().into_iter().flatten();
    for (index, webhook) in webhooks.enumerate() {
        let client = &webhook["clientConfig"];
        if !identity.is_called_by(client) {
            continue;
        }
        let at = format!("/webhooks/{index}/clientConfig");
        if client["caBundle"] != authority.as_str() {
            let path = format!("{at}/caBundle");
            operations.push(json!({"op": "add", "path": path, "value": authority}));
        }
        let current = identity.current.as_str();
        if token_of(client, action) == Some(current) {
            continue;
        }
        let path = with_token(path_of(client), action, current);
        operations.push(match client["url"].as_str() {
            Some(url) => {
                let url = format!("{}{path}", split_url(url).0);
                json!({"op": "add", "path": format!("{at}/url"), "value": url})
            }
            None => json!({"op": "add", "path": format!("{at}/service/path"), "value": path}),
        });
    }
    if !operations.is_empty() {
        let unchanged =
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": resource_version});
        operations.insert(0, unchanged);
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Token;

    #[test]
    fn token_becomes_the_last_segment_and_the_prefix_stays() {
        for (path, expected) in [
            ("", "/validate/new"),
            ("/", "/validate/new"),
            ("/validate", "/validate/new"),
            ("/validate/", "/validate/new"),
            ("/validate/old", "/validate/new"),
            ("/hooks", "/hooks/validate/new"),
            ("/hooks/validate", "/hooks/validate/new"),
            ("/hooks/validate/old", "/hooks/validate/new"),
        ] {
            assert_eq!(with_token(path, "validate", "new"), expected, "{path}");
        }
    }

    #[test]
    fn token_is_read_from_service_and_url() {
        for (client, expected) in [
            (
                json!({"service": {"path": "/a/validate/token"}}),
                Some("token"),
            ),
            (
                json!({"url": "https://127.0.0.1:1/validate/token"}),
                Some("token"),
            ),
            (json!({"url": "https://127.0.0.1:1"}), None),
            (json!({"service": {"path": "/mutate/token"}}), None),
            (json!({"service": {}}), None),
            (json!({}), None),
        ] {
            assert_eq!(token_of(&client, "validate"), expected, "{client}");
        }
    }

    #[test]
    fn corrects_only_differences_in_own_webhooks_of_an_unchanged_object() {
        let token = Token::random();
        let identity = Identity {
            namespace: "sys",
            service: "hook",
            trusted: "new",
            current: &token,
            previous: None,
        };
        let (right, text) = (STANDARD.encode("new"), token.as_str());
        let service = |name: &str, path: &str, authority: &str| {
            json!({"clientConfig": {
                "service": {"namespace": "sys", "name": name, "path": path},
                "caBundle": authority,
            }})
        };
        let object = json!({"webhooks": [
            service("hook", &format!("/validate/{text}"), &right),
            service("hook", "/validate/old", "b2xk"),
            service("another", "/validate", "b2xk"),
            {"clientConfig": {"url": "https://127.0.0.1:1/validate", "caBundle": right}},
        ]});
        assert_eq!(
            Value::Array(corrections(&object, "7", "validate", &identity)),
            json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": right},
                {"op": "add", "path": "/webhooks/1/clientConfig/service/path", "value": format!("/validate/{text}")},
                {"op": "add", "path": "/webhooks/3/clientConfig/url", "value": format!("https://127.0.0.1:1/validate/{text}")},
            ])
        );
        assert!(corrections(&json!({}), "7", "validate", &identity).is_empty());
    }
}
