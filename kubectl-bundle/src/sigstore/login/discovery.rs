//! Endpoints of an issuer (OpenID Connect Discovery).

use bundle_core::diagnostic::{Finding, codes};
use serde::Deserialize;
use url::Url;

use super::{ISSUER, unusable};
use crate::failure::{Failure, Outcome};
use crate::sigstore::http::{HttpClients, ServiceRequest};
use crate::system::network::is_loopback;

/// Endpoints of an issuer.
#[derive(Debug)]
pub(super) struct Endpoints {
    /// Authorization endpoint, for a browser.
    pub(super) authorization: Option<Url>,
    /// Device authorization endpoint.
    pub(super) device: Option<Url>,
    /// Token endpoint.
    pub(super) token: Url,
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
}

/// Reads the endpoints of `issuer`.
pub(super) async fn discover(http: &HttpClients, issuer: &str) -> Outcome<Endpoints> {
    let address = Url::parse(issuer).map_err(|error| {
        let finding = Finding::error(
            codes::usage::BAD_ARGUMENT,
            format!("`{issuer}` is not a valid URL of an issuer"),
        );
        Failure::caused(finding.hint("write https://HOST"), &error)
    })?;
    let endpoint = format!(
        "{}/.well-known/openid-configuration",
        issuer.trim_end_matches('/')
    );
    let answer = http
        .send(ServiceRequest {
            service: ISSUER,
            url: Url::parse(&endpoint),
            media_type: "",
            content: Vec::new(),
            bearer: None,
        })
        .await?;
    Ok(read(&answer, issuer, &address)?)
}

fn read(answer: &[u8], issuer: &str, address: &Url) -> Result<Endpoints, Finding> {
    let document: Document = serde_json::from_slice(answer)
        .map_err(|_| unusable("it is not an OpenID Connect discovery document"))?;
    if document.issuer != issuer {
        return Err(unusable(&format!(
            "its issuer is `{}`, expected `{issuer}`",
            crate::ui::safe(&document.issuer)
        )));
    }
    // Without PKCE, any process that reads the code could exchange the code for a token.
    if !document
        .code_challenge_methods_supported
        .iter()
        .any(|method| method == "S256")
    {
        return Err(unusable("it does not support PKCE (S256)"));
    }
    let endpoint = |name: &str, text: Option<String>| {
        text.map(|text| {
            let url =
                Url::parse(&text).map_err(|_| unusable(&format!("its {name} is not a URL")))?;
            let fits = url.scheme() == "https"
                || (url.scheme() == "http" && is_loopback(&url) && is_loopback(address));
            if fits {
                Ok(url)
            } else {
                Err(unusable(&format!("its {name} does not use TLS")))
            }
        })
        .transpose()
    };
    Ok(Endpoints {
        authorization: endpoint("authorization_endpoint", document.authorization_endpoint)?,
        device: endpoint(
            "device_authorization_endpoint",
            document.device_authorization_endpoint,
        )?,
        token: endpoint("token_endpoint", document.token_endpoint)?
            .ok_or_else(|| unusable("it has no token_endpoint"))?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(change: Value) -> Result<Endpoints, String> {
        let mut document = json!({
            "issuer": "https://issuer.example.com/auth",
            "authorization_endpoint": "https://issuer.example.com/auth/auth",
            "token_endpoint": "https://issuer.example.com/auth/token",
            "code_challenge_methods_supported": ["S256", "plain"],
        });
        if let (Value::Object(document), Value::Object(change)) = (&mut document, change) {
            document.extend(change);
        }
        let issuer = "https://issuer.example.com/auth";
        read(
            document.to_string().as_bytes(),
            issuer,
            &Url::parse(issuer).unwrap(),
        )
        .map_err(|finding| finding.message)
    }

    #[test]
    fn rejects_a_discovery_document_of_another_issuer() {
        let endpoints = parse(json!({})).unwrap();
        assert!(endpoints.device.is_none());
        for (change, why) in [
            (
                json!({"issuer": "https://issuer.example.com/auth/"}),
                "its issuer is",
            ),
            (
                json!({"issuer": "https://evil.example.com"}),
                "its issuer is",
            ),
            (
                json!({"code_challenge_methods_supported": ["plain"]}),
                "PKCE",
            ),
            (json!({"token_endpoint": null}), "has no token_endpoint"),
            (
                json!({"token_endpoint": "http://issuer.example.com/token"}),
                "does not use TLS",
            ),
            (
                json!({"token_endpoint": "http://127.0.0.1:1/token"}),
                "does not use TLS",
            ),
            (
                json!({"authorization_endpoint": "file:///etc/passwd"}),
                "does not use TLS",
            ),
            (
                json!({"device_authorization_endpoint": "device"}),
                "is not a URL",
            ),
            (
                json!({"issuer": 1}),
                "it is not an OpenID Connect discovery document",
            ),
        ] {
            let message = parse(change.clone()).unwrap_err();
            assert!(message.contains(why), "{change}: {message}");
        }
    }
}
