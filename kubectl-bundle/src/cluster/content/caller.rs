//! The bearer token of a caller of the content service. bundle-webhook sends the token to the API
//! server in a TokenReview, which returns the identity. Therefore client certificates and
//! impersonation have no effect.

use bundle_api::ServiceAccountName;
use bundle_cluster::ObjectUrl;
use bundle_core::diagnostic::{Finding, codes};
use http::{HeaderValue, Request, Response, header};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::ApiResource;
use kube::client::{Body, ConfigExt as _};
use kube::config::AuthInfo;
use tower::{BoxError, Layer as _, ServiceExt as _};

use crate::cluster::config::select_cluster;
use crate::cluster::{Cluster, KubeSettings};
use crate::failure::{Failure, Outcome};

/// Lifetime of a requested token, in seconds. A command that waits longer must be repeated.
const TOKEN_SECONDS: i64 = 3600;
/// Hint for users without a token.
const HINT: &str = "act as a ServiceAccount with --as-service-account NAMESPACE/NAME; this requires permission to create serviceaccounts/token";

/// Returns the settings to act as `account`, with a requested token. Without an account, returns
/// the settings of the user of the kubeconfig.
pub(crate) async fn act_as(
    settings: &KubeSettings,
    account: Option<&ServiceAccountName>,
) -> Outcome<KubeSettings> {
    let mut settings = settings.clone();
    if let Some(account) = account {
        settings.authorization = Some(request_token(&settings, account).await?);
        settings.act_as = None;
        settings.as_groups.clear();
    }
    Ok(settings)
}

/// Requests a token of `account`.
async fn request_token(
    settings: &KubeSettings,
    account: &ServiceAccountName,
) -> Outcome<HeaderValue> {
    let cluster = Cluster::connect(settings).await?;
    let accounts = ApiResource::erase::<ServiceAccount>(&());
    let request = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let sent = async {
        let url = ObjectUrl::parse(&accounts, Some(&account.namespace), &account.name)
            .map_err(kube::Error::BuildRequest)?;
        let body = serde_json::to_vec(&request).map_err(kube::Error::SerdeError)?;
        let request = Request::post(format!("{}/token", url.path()))
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(kube::Error::HttpError)?;
        cluster.client.request::<TokenRequest>(request).await
    };
    let status = cluster.send(sent).await?.status;
    let token = status.map(|status| status.token).unwrap_or_default();
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut header = header.map_err(|error| {
        let finding = Finding::error(
            codes::cluster::BAD_ANSWER,
            format!("the API server {} returned an invalid token", cluster.name),
        );
        Failure::caused(finding, &error)
    })?;
    header.set_sensitive(true);
    Ok(header)
}

/// Returns the header with the token of the kubeconfig, which can come from a file or from an
/// external command.
pub(super) async fn token(settings: &KubeSettings) -> Outcome<HeaderValue> {
    if let Some(authorization) = &settings.authorization {
        return Ok(authorization.clone());
    }
    let config = select_cluster(settings).await?.config;
    // Impersonation is set by a flag, or by the user in the kubeconfig.
    if let Some(user) = impersonated(&config.auth_info) {
        return Err(no_token(&format!(
            "bundle-webhook cannot see that you impersonate {user}"
        )));
    }
    let unusable = |error: &(dyn std::error::Error + 'static)| {
        let finding = Finding::error(
            codes::cluster::BAD_KUBECONFIG,
            "cannot get the token of the kubeconfig",
        );
        Failure::caused(
            finding.hint("log in again, or check the user in the kubeconfig"),
            error,
        )
    };
    let none = || no_token("the user of the kubeconfig has no bearer token");
    let Some(layer) = config.auth_layer().map_err(|error| unusable(&error))? else {
        return Err(none());
    };
    // The authentication layer adds the header to a request. This service returns the headers of
    // the request in its response.
    let echo = tower::service_fn(async |request: Request<Body>| {
        let mut response = Response::new(());
        *response.headers_mut() = request.into_parts().0.headers;
        Ok::<_, BoxError>(response)
    });
    let answer = layer.layer(echo).oneshot(Request::new(Body::empty())).await;
    let answer = answer.map_err(|error| unusable(error.as_ref()))?;
    let header = answer.headers().get(header::AUTHORIZATION);
    let mut header = header.ok_or_else(none)?.clone();
    // The header can also contain a user name and password, which are no token.
    if !header.as_bytes().starts_with(b"Bearer ") {
        return Err(none());
    }
    header.set_sensitive(true);
    Ok(header)
}

/// Returns the user that a request impersonates. Without a user, returns the groups.
fn impersonated(user: &AuthInfo) -> Option<String> {
    let groups = user.impersonate_groups.as_deref().unwrap_or_default();
    let groups = (!groups.is_empty()).then(|| groups.join(", "));
    user.impersonate.clone().or(groups)
}

fn no_token(message: &str) -> Failure {
    Finding::error(
        codes::cluster::NO_TOKEN,
        format!("{message}; the content service of bundle-webhook accepts only tokens"),
    )
    .hint(HINT)
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_a_kubeconfig_can_impersonate() {
        let user = |text: &str| serde_json::from_str::<AuthInfo>(text).unwrap();
        for (text, expected) in [
            (r#"{"token": "t"}"#, None),
            (r#"{"token": "t", "as-groups": []}"#, None),
            (r#"{"token": "t", "as": "ana"}"#, Some("ana")),
            (r#"{"token": "t", "as-groups": ["a", "b"]}"#, Some("a, b")),
        ] {
            assert_eq!(impersonated(&user(text)).as_deref(), expected, "{text}");
        }
    }
}
