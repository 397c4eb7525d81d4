//! HTTP layer of all clients. A request that impersonates a user fails in this layer if the request
//! is not a dry run.

use http::{HeaderMap, Method, Request, Uri};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tower::service_fn;

/// Allowed query parameters of a dry run.
const PARAMETERS: [&str; 4] = ["dryRun", "force", "fieldManager", "fieldValidation"];

/// Reason why a request was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a request that impersonates a user was not sent: {0}")]
struct NotDryRun(&'static str);

/// Identity that a request impersonates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Impersonated {
    None,
    ServiceAccount,
    Other,
}

/// Returns a client that sends through `base` and fails for requests that impersonate a user and
/// are not dry runs.
pub(crate) fn guarded(base: Client) -> Client {
    let namespace = base.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let base = base.clone();
        async move {
            let request = checked(request).await?;
            Ok::<_, tower::BoxError>(base.send(request).await?)
        }
    });
    Client::new(service, namespace)
}

async fn checked(request: Request<Body>) -> Result<Request<Body>, tower::BoxError> {
    if impersonated(request.headers()) != Impersonated::Other {
        return Ok(request);
    }
    is_dry_run(request.method(), request.uri())?;
    if request.method() == Method::PATCH {
        return Ok(request);
    }
    // If the body of a deletion contains options, the API server ignores the query. Therefore the
    // body is checked too.
    let (head, body) = request.into_parts();
    let body = body.collect_bytes().await?;
    let options: Value = serde_json::from_slice(&body)?;
    if options["dryRun"] != serde_json::json!(["All"]) {
        return Err(NotDryRun("the options in its body do not request a dry run").into());
    }
    Ok(Request::from_parts(head, Body::from(body.to_vec())))
}

/// Returns the impersonated identity. This crate impersonates a ServiceAccount only by its user
/// name. Headers for groups, uid or extra fields could add permissions, so a request with such
/// headers counts as the impersonation of a user.
fn impersonated(headers: &HeaderMap) -> Impersonated {
    let mut named = headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("impersonate-"));
    match (named.next(), named.next()) {
        (None, _) => Impersonated::None,
        (Some((name, value)), None)
            if name == "impersonate-user"
                && value.as_bytes().starts_with(b"system:serviceaccount:") =>
        {
            Impersonated::ServiceAccount
        }
        _ => Impersonated::Other,
    }
}

/// Accepts only a PATCH or DELETE of one object. The query must contain `dryRun=All` exactly once
/// and no unexpected parameter.
fn is_dry_run(method: &Method, uri: &Uri) -> Result<(), NotDryRun> {
    if method != Method::PATCH && method != Method::DELETE {
        return Err(NotDryRun("it is neither a patch nor a deletion"));
    }
    let mut dry_runs = 0;
    let pairs = uri.query().unwrap_or_default().split('&');
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "dryRun" if value == "All" => dry_runs += 1,
            "dryRun" => return Err(NotDryRun("the value of dryRun in its query is not All")),
            key if PARAMETERS.contains(&key) => {}
            _ => return Err(NotDryRun("its query has an unexpected parameter")),
        }
    }
    if dry_runs != 1 {
        return Err(NotDryRun("its query does not have dryRun=All exactly once"));
    }
    if !is_object(uri.path()) {
        return Err(NotDryRun("its path does not name one object"));
    }
    Ok(())
}

/// Returns true if the path is the path of one object. Returns false for collections, and for
/// subresources, because a subresource may ignore `dryRun`.
fn is_object(path: &str) -> bool {
    let mut segments = path.split('/').collect::<Vec<_>>().into_iter();
    let root = (segments.next(), segments.next());
    let skipped = match root {
        (Some(""), Some("api")) => 1,
        (Some(""), Some("apis")) => 2,
        _ => return false,
    };
    let rest: Vec<&str> = segments.skip(skipped).collect();
    let clean = rest
        .iter()
        .all(|part| !part.is_empty() && !part.contains('%') && *part != "." && *part != "..");
    let one = matches!(rest.as_slice(), [_, _] | ["namespaces", _, _, _]);
    clean && one
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn service_account_with_groups_uid_or_extra_requires_dry_run() {
        let account = ("impersonate-user", "system:serviceaccount:a:b");
        assert_eq!(
            impersonated(&headers(&[("accept", "a")])),
            Impersonated::None
        );
        assert_eq!(
            impersonated(&headers(&[account])),
            Impersonated::ServiceAccount
        );
        for person in [
            vec![("impersonate-user", "ana")],
            vec![account, ("impersonate-group", "system:masters")],
            vec![account, ("impersonate-uid", "1")],
            vec![account, ("impersonate-extra-scopes", "a")],
            vec![("impersonate-group", "system:masters")],
        ] {
            assert_eq!(
                impersonated(&headers(&person)),
                Impersonated::Other,
                "{person:?}"
            );
        }
    }

    #[test]
    fn only_dry_runs_about_one_object_pass() {
        let one = "/api/v1/namespaces/a/configmaps/b";
        let passes =
            |method: Method, target: &str| is_dry_run(&method, &target.parse().unwrap()).is_ok();
        assert!(passes(
            Method::PATCH,
            &format!("{one}?&dryRun=All&force=true&fieldManager=m")
        ));
        assert!(passes(
            Method::DELETE,
            "/apis/apps/v1/namespaces/a/deployments/b?dryRun=All"
        ));
        assert!(passes(Method::PATCH, "/apis/g/v1/things/b?dryRun=All"));
        for (method, target) in [
            (Method::PATCH, one.to_owned()),
            (Method::PATCH, format!("{one}?dryRun=")),
            (Method::PATCH, format!("{one}?dryRun=all")),
            (Method::PATCH, format!("{one}?dryRun=All&dryRun=All")),
            (Method::PATCH, format!("{one}?dryRun=All&dryRun=None")),
            (Method::PATCH, format!("{one}?dryRun=All&%64ryRun=None")),
            (Method::PATCH, format!("{one}?dryrun=All")),
            (Method::POST, format!("{one}?dryRun=All")),
            (Method::PUT, format!("{one}?dryRun=All")),
            (Method::GET, format!("{one}?dryRun=All")),
            (
                Method::DELETE,
                "/api/v1/namespaces/a/configmaps?dryRun=All".to_owned(),
            ),
            (
                Method::PATCH,
                "/api/v1/namespaces/a/pods/b/exec?dryRun=All".to_owned(),
            ),
            (Method::PATCH, "/api/v1/nodes/a/proxy?dryRun=All".to_owned()),
            (
                Method::PATCH,
                "/api/v1/namespaces/a/pods/..?dryRun=All".to_owned(),
            ),
            (
                Method::PATCH,
                "/api/v1/namespaces/a/pods/b%2fexec?dryRun=All".to_owned(),
            ),
            (Method::PATCH, "/metrics?dryRun=All".to_owned()),
        ] {
            assert!(!passes(method, &target), "{target}");
        }
    }
}
