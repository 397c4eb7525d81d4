//! Parser of registries.conf version 2 (containers-registries.conf(5)). The parser reads only the
//! fields that apply to fully qualified image names.

use std::path::Path;

use serde::Deserialize;

use super::{MirrorRule, RegistryRule};
use crate::limits::CREDENTIAL_BYTES;
use crate::registry::bounded_file::read_bounded;

/// Document of a registries.conf. Fields for short names, credential helpers and aliases are
/// ignored.
#[derive(Deserialize)]
struct RegistriesConf {
    #[serde(default)]
    registry: Vec<RegistryEntry>,
    /// Tables `[registries.…]`, which only version 1 of the format has.
    registries: Option<toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RegistryEntry {
    prefix: Option<String>,
    location: Option<String>,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    blocked: bool,
    #[serde(default)]
    mirror_by_digest_only: bool,
    #[serde(default)]
    mirror: Vec<MirrorEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct MirrorEntry {
    location: String,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    pull_from_mirror: PullFromMirror,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PullFromMirror {
    #[default]
    All,
    DigestOnly,
    TagOnly,
}

pub(super) fn read(path: &Path) -> Result<Vec<RegistryRule>, String> {
    let content = read_bounded(path, CREDENTIAL_BYTES).map_err(|error| error.to_string())?;
    let text = String::from_utf8(content).map_err(|_| "the file is not UTF-8".to_owned())?;
    parse(&text)
}

pub(super) fn parse(text: &str) -> Result<Vec<RegistryRule>, String> {
    let file: RegistriesConf =
        toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
    if file.registries.is_some() {
        return Err(
            "it has version 1 (`[registries.…]`), which is not supported; use `[[registry]]`"
                .to_owned(),
        );
    }
    file.registry.into_iter().map(rule).collect()
}

fn rule(entry: RegistryEntry) -> Result<RegistryRule, String> {
    let location = entry
        .location
        .as_deref()
        .filter(|text| !text.is_empty())
        .map(parse_location)
        .transpose()?;
    let prefix = match entry.prefix.as_deref().filter(|text| !text.is_empty()) {
        Some(prefix) => parse_location(prefix)?,
        None => location
            .clone()
            .ok_or("a `[[registry]]` has neither `prefix` nor `location`")?,
    };
    if prefix.starts_with("*.") && (location.is_some() || prefix.contains('/')) {
        return Err(format!(
            "`{prefix}`: a prefix with a wildcard must be a domain without path, and must not have a `location`"
        ));
    }
    let mirrors = entry
        .mirror
        .into_iter()
        .map(|mirror| {
            let from = mirror.pull_from_mirror;
            if entry.mirror_by_digest_only && from == PullFromMirror::TagOnly {
                return Err(format!(
                    "`{prefix}`: `mirror-by-digest-only` contradicts `pull-from-mirror = \"tag-only\"`"
                ));
            }
            Ok(MirrorRule {
                location: parse_location(&mirror.location)?,
                insecure: mirror.insecure,
                digests: from != PullFromMirror::TagOnly,
                tags: from != PullFromMirror::DigestOnly && !entry.mirror_by_digest_only,
            })
        })
        .collect::<Result<_, String>>()?;
    Ok(RegistryRule {
        canonical_prefix: super::canonical(&prefix),
        prefix,
        location,
        insecure: entry.insecure,
        blocked: entry.blocked,
        mirrors,
    })
}

/// Parses a host with optional port and path.
fn parse_location(text: &str) -> Result<String, String> {
    if text.contains("://") {
        return Err(format!(
            "`{text}` is a URL; write the host without a scheme, and set `insecure = true` if it has no TLS"
        ));
    }
    let tidy = text.trim_end_matches('/');
    if tidy.is_empty() || tidy.contains(|c: char| c.is_whitespace() || "@?#\\".contains(c)) {
        return Err(format!("`{text}` is not HOST[:PORT][/PATH]"));
    }
    Ok(tidy.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_invalid_entries_with_a_reason() {
        for (text, why) in [
            ("[[registry]]\nprefix = 1", "invalid type"),
            (
                "[[registry]]\nprefix = \"a.example.com\"\nblockd = true",
                "unknown field `blockd`",
            ),
            ("[[registry]]\n", "neither `prefix` nor `location`"),
            (
                "[[registry]]\nlocation = \"https://a.example.com\"",
                "is a URL",
            ),
            (
                "[[registry]]\nprefix = \"*.example.com\"\nlocation = \"b.example.com\"",
                "wildcard",
            ),
            ("[registries.search]\nregistries = []", "version 1"),
            ("[[registry]", ""),
            (
                "[[registry]]\nlocation = \"a.example.com\"\n[[registry.mirror]]\nlocation = \"b.example.com\"\npull-from-mirror = \"never\"",
                "unknown variant `never`",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert_eq!(
            parse("unqualified-search-registries = [\"docker.io\"]"),
            Ok(vec![])
        );
    }
}
