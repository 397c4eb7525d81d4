//! Finds built-in kinds that this version of the API server does not serve. The message of a
//! condition names these kinds.

use bundle_core::diagnostic::codes;
use bundle_core::version::{ServerVersion, apis};

use super::prediction::StopCause;

/// Text before each missing kind: `no matches for kind "Job" in version "batch/v1"`.
const MISSING: &str = "no matches for kind ";

/// Returns `true` if the message of a failure names kinds that the API server does not serve.
pub(crate) fn has_missing_kinds(message: &str) -> bool {
    message.contains(MISSING)
}

/// Returns the cause of a permanent failure if `message` names a built-in kind that the version
/// `server` does not serve. For other kinds, returns `None`, because their
/// CustomResourceDefinitions may still be installed.
pub(crate) fn cause(message: &str, server: &ServerVersion) -> Option<StopCause> {
    let kinds = message.split(MISSING).skip(1).filter_map(kind);
    let changes: Vec<String> = kinds
        .filter_map(|(kind, version)| change(kind, version, server))
        .collect();
    (!changes.is_empty()).then(|| StopCause {
        code: codes::check::API_NOT_SERVED,
        message: message.to_owned(),
        hint: Some(changes.join("; ")),
    })
}

/// Parses kind and API version at the beginning of a text: `"Job" in version "batch/v1"`.
fn kind(text: &str) -> Option<(&str, &str)> {
    let mut quoted = text.split('"');
    Some((quoted.nth(1)?, quoted.nth(1)?))
}

/// Returns the required change if the server does not serve the API: Kubernetes removed the API in
/// this version or earlier, or introduced it in a later version.
fn change(kind: &str, api_version: &str, server: &ServerVersion) -> Option<String> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let api = apis::api(group, version, kind)?;
    if let Some(introduced) = api.introduced.filter(|first| *first > server.minor()) {
        return Some(format!(
            "Kubernetes {introduced} introduced {api_version}/{kind}, and this server is {}; deploy content for this version, or upgrade the cluster",
            server.minor()
        ));
    }
    let removed = api.removed.filter(|removed| *removed <= server.minor())?;
    let next = match api.replacement {
        Some(replacement) => format!("deploy content that uses {replacement}"),
        None => "deploy content without it: nothing replaced it".to_owned(),
    };
    Some(format!(
        "Kubernetes {removed} removed {api_version}/{kind}, and this server is {}; {next}",
        server.minor()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(message: &str, server: &str) -> Option<String> {
        let server = ServerVersion::parse(server).unwrap();
        cause(message, &server).and_then(|cause| cause.hint)
    }

    #[test]
    fn names_replacement_of_each_api_that_the_server_no_longer_serves() {
        let message = "required resource not found: no matches for kind \"CronJob\" in version \"batch/v1beta1\", \
                       no matches for kind \"Shop\" in version \"example.com/v1\", no matches for kind \"PodSecurityPolicy\" in version \"policy/v1beta1\"";
        assert!(has_missing_kinds(message));
        assert_eq!(
            hint(message, "v1.36.0-eks-a1b2c3d").unwrap(),
            "Kubernetes 1.25 removed batch/v1beta1/CronJob, and this server is 1.36; deploy content that uses batch/v1/CronJob; \
             Kubernetes 1.25 removed policy/v1beta1/PodSecurityPolicy, and this server is 1.36; deploy content without it: nothing replaced it"
        );
        assert_eq!(hint(message, "v1.24.9"), None);
    }

    #[test]
    fn names_version_that_introduces_an_api() {
        let message = "required resource not found: no matches for kind \"ResourceClaim\" in version \"resource.k8s.io/v1\", \
                       no matches for kind \"Shop\" in version \"example.com/v1\"";
        assert_eq!(
            hint(message, "v1.33.4+k3s1").unwrap(),
            "Kubernetes 1.34 introduced resource.k8s.io/v1/ResourceClaim, and this server is 1.33; deploy content for this version, or upgrade the cluster"
        );
        // The version of the API server has the kind, but the API is not enabled on this server.
        for server in ["v1.34.0", "v1.36.0"] {
            assert_eq!(hint(message, server), None, "{server}");
        }
    }

    #[test]
    fn kinds_without_a_known_version_are_no_cause() {
        for message in [
            "required resource not found: no matches for kind \"Shop\" in version \"example.com/v1\"",
            "required resource not found: no matches for kind \"CronJob\" in version \"batch/v1\"",
            "required resource not found: no matches for kind \"ConfigMap\" in version \"v1\"",
            "no matches for kind ",
            "no matches for kind \"CronJob",
            "CronJob batch/v1beta1 is missing",
        ] {
            assert_eq!(hint(message, "v1.36.0"), None, "{message}");
        }
    }
}
