//! Signing configs: selects the services of a Sigstore instance that are valid now.

use bundle_core::diagnostic::{Finding, codes};
use jiff::Timestamp;
use serde::Deserialize;

use super::LogVersion;

/// Media type of a signing config v0.2, without the suffix `+json`.
pub(super) const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.signingconfig.v0.2";
/// Maximum number of logs, and maximum number of timestamp authorities, for one signature.
/// Verifiers reject Sigstore bundles with more evidence.
const MAX_SERVICES: usize = 4;

/// A signing config (v0.2).
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SigningConfig {
    media_type: String,
    #[serde(default)]
    ca_urls: Vec<Service>,
    #[serde(default)]
    oidc_urls: Vec<Service>,
    #[serde(default)]
    rekor_tlog_urls: Vec<Service>,
    #[serde(default)]
    rekor_tlog_config: Selection,
    #[serde(default)]
    tsa_urls: Vec<Service>,
    #[serde(default)]
    tsa_config: Selection,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Service {
    url: String,
    major_api_version: u32,
    #[serde(default)]
    valid_for: Window,
    #[serde(default)]
    operator: String,
}

#[derive(Debug, Default, Deserialize)]
struct Window {
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

/// Rule for the selection of services of one kind. `count` is used only with [`Selector::Exact`].
#[derive(Debug, Default, Deserialize)]
struct Selection {
    #[serde(default)]
    selector: Selector,
    #[serde(default)]
    count: usize,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Selector {
    /// One service of the list.
    #[default]
    Any,
    /// All services.
    All,
    /// Exactly `count` services.
    Exact,
}

impl SigningConfig {
    /// Parses a signing config.
    pub fn parse(text: &[u8]) -> Result<Self, Finding> {
        let config: Self = bundle_core::json::read(text)
            .map_err(|error| unusable(&format!("invalid JSON: {error}")))?;
        if config.media_type.starts_with(MEDIA_TYPE) {
            Ok(config)
        } else {
            Err(unusable("its media type is not that of version 0.2"))
        }
    }

    /// Returns the URL of the certificate authority.
    pub fn authority(&self, now: Timestamp) -> Result<&str, Finding> {
        let what = "certificate authority";
        let found = choose(&self.ca_urls, &Selection::default(), &[1], what, now)?;
        one(&found, what)
    }

    /// Returns the OpenID Connect issuer for the login; `None` if the config names no issuer.
    pub fn issuer(&self, now: Timestamp) -> Result<Option<&str>, Finding> {
        if self.oidc_urls.is_empty() {
            return Ok(None);
        }
        let what = "issuer of identity tokens";
        let found = choose(&self.oidc_urls, &Selection::default(), &[1], what, now)?;
        one(&found, what).map(Some)
    }

    /// Returns the URLs and the version of the logs to use. This is the newest version in
    /// `versions` for which the config has a valid log.
    pub fn logs(
        &self,
        versions: &[LogVersion],
        now: Timestamp,
    ) -> Result<Vec<(&str, LogVersion)>, Finding> {
        let names: Vec<_> = versions
            .iter()
            .map(|one| format!("v{}", one.number()))
            .collect();
        let what = format!("transparency log (Rekor {})", names.join(" or "));
        let numbers: Vec<u32> = versions.iter().map(|one| one.number()).collect();
        let services = &self.rekor_tlog_urls;
        let found = choose(services, &self.rekor_tlog_config, &numbers, &what, now)?;
        Ok(found
            .into_iter()
            .filter_map(|one| Some((one.url.as_str(), LogVersion::of(one.major_api_version)?)))
            .collect())
    }

    /// Returns the timestamp authorities. The list is empty if the config names no timestamp
    /// authority.
    pub fn timestamps(&self, now: Timestamp) -> Result<Vec<&str>, Finding> {
        if self.tsa_urls.is_empty() {
            return Ok(Vec::new());
        }
        let what = "timestamp authority";
        let found = choose(&self.tsa_urls, &self.tsa_config, &[1], what, now)?;
        Ok(found.into_iter().map(|one| one.url.as_str()).collect())
    }
}

/// Returns the services to use, the newest first. Only services are used that are valid now and
/// have the highest of `versions`. For each operator, only the newest service is used. `selection`
/// determines the number of services.
fn choose<'a>(
    services: &'a [Service],
    selection: &Selection,
    versions: &[u32],
    what: &str,
    now: Timestamp,
) -> Result<Vec<&'a Service>, Finding> {
    let in_use = |service: &&Service| {
        let Window { start, end } = &service.valid_for;
        versions.contains(&service.major_api_version)
            && start.is_none_or(|start| start <= now)
            && end.is_none_or(|end| now < end)
    };
    let mut usable: Vec<&Service> = services.iter().filter(in_use).collect();
    let highest = usable.iter().map(|one| one.major_api_version).max();
    usable.retain(|one| Some(one.major_api_version) == highest);
    usable.sort_by_key(|one| std::cmp::Reverse(one.valid_for.start));
    let mut chosen: Vec<&Service> = Vec::new();
    for service in usable {
        if chosen.iter().all(|one| one.operator != service.operator) {
            chosen.push(service);
        }
    }
    if chosen.is_empty() {
        return Err(unusable(&format!("it has no active {what}")));
    }
    let wanted = match selection.selector {
        Selector::Any => 1,
        Selector::All => chosen.len(),
        Selector::Exact if selection.count == 0 => {
            return Err(unusable(&format!(
                "it requires exactly 0 services of type {what}"
            )));
        }
        Selector::Exact => selection.count,
    };
    if wanted > chosen.len() {
        return Err(unusable(&format!(
            "it requires services of type {what} by {wanted} operators, but only {} have an active service",
            chosen.len()
        )));
    }
    if wanted > MAX_SERVICES {
        return Err(unusable(&format!(
            "it requires {wanted} services of type {what}, and the limit is {MAX_SERVICES}"
        )));
    }
    chosen.truncate(wanted);
    Ok(chosen)
}

fn one<'a>(found: &[&'a Service], what: &str) -> Result<&'a str, Finding> {
    let first = found.first().map(|one| one.url.as_str());
    first.ok_or_else(|| unusable(&format!("it has no {what}")))
}

fn unusable(why: &str) -> Finding {
    let why: String = why.chars().take(300).collect();
    Finding::error(
        codes::usage::BAD_ARGUMENT,
        format!("invalid signing config: {why}"),
    )
    .hint("`cosign signing-config create` writes a signing config; alternatively, pass the URLs as flags")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        "2026-11-21T00:00:00Z".parse().unwrap()
    }

    fn log(name: &str, version: u32, start: &str, operator: &str) -> Value {
        json!({
            "url": format!("https://{name}.example.com"),
            "majorApiVersion": version,
            "validFor": {"start": start},
            "operator": operator,
        })
    }

    fn logs(
        services: &[Value],
        selection: &Value,
        versions: &[LogVersion],
    ) -> Result<Vec<String>, String> {
        let config = json!({
            "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
            "rekorTlogUrls": services,
            "rekorTlogConfig": selection,
        });
        let config = SigningConfig::parse(config.to_string().as_bytes())
            .map_err(|finding| finding.to_string())?;
        let found = config
            .logs(versions, now())
            .map_err(|finding| finding.to_string())?;
        let name = |url: &str| url["https://".len()..].replace(".example.com", "");
        Ok(found.into_iter().map(|(url, _)| name(url)).collect())
    }

    #[test]
    fn selects_newest_service_of_highest_version_per_operator() {
        use LogVersion::{One, Two};
        let old = "2024-01-01T00:00:00Z";
        let services = [
            log("one", 1, old, "a"),
            log("two-2025", 2, "2025-01-01T00:00:00Z", "a"),
            log("two-2026", 2, "2026-01-01T00:00:00Z", "a"),
            log("two-2027", 2, "2027-01-01T00:00:00Z", "a"),
            log("two-other", 2, old, "b"),
            log("three", 3, old, "c"),
        ];
        let all = |selection: Value, versions: &[LogVersion]| logs(&services, &selection, versions);
        let both = [One, Two];
        assert_eq!(all(json!({}), &both).unwrap(), ["two-2026"]);
        assert_eq!(
            all(json!({"selector": "ANY"}), &both).unwrap(),
            ["two-2026"]
        );
        assert_eq!(all(json!({"selector": "ANY"}), &[One]).unwrap(), ["one"]);
        assert_eq!(
            all(json!({"selector": "ALL"}), &both).unwrap(),
            ["two-2026", "two-other"]
        );
        let exact = |count: u32| all(json!({"selector": "EXACT", "count": count}), &both);
        assert_eq!(exact(1).unwrap(), ["two-2026"]);
        assert_eq!(exact(2).unwrap(), ["two-2026", "two-other"]);
        assert!(
            exact(3)
                .unwrap_err()
                .contains("but only 2 have an active service")
        );
        assert!(exact(0).unwrap_err().contains("exactly 0"));
    }

    #[test]
    fn rejects_config_without_usable_services() {
        let both = [LogVersion::One, LogVersion::Two];
        let any = json!({});
        let told = |services: &[Value]| logs(services, &any, &both).unwrap_err();
        assert!(told(&[]).contains("no active transparency log (Rekor v1 or v2)"));
        let mut ended = log("one", 1, "2024-01-01T00:00:00Z", "a");
        ended["validFor"]["end"] = json!("2025-01-01T00:00:00Z");
        assert!(told(&[ended]).contains("no active"));
        assert!(told(&[log("three", 3, "2024-01-01T00:00:00Z", "a")]).contains("no active"));
        let undefined = json!({"selector": "SERVICE_SELECTOR_UNDEFINED"});
        let told = logs(&[], &undefined, &both).unwrap_err();
        assert!(told.contains("invalid JSON"), "{told}");
        for text in ["", "[]", r#"{"mediaType": "application/json"}"#] {
            assert!(SigningConfig::parse(text.as_bytes()).is_err());
        }
        let many: Vec<Value> = (0..5)
            .map(|n| log("one", 1, "2024-01-01T00:00:00Z", &n.to_string()))
            .collect();
        let told = logs(&many, &json!({"selector": "ALL"}), &both).unwrap_err();
        assert!(told.contains("the limit is 4"), "{told}");
    }
}
