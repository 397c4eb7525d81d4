//! Mirrors of repositories from registries.conf. Mirrors are tried before the location of the
//! repository. The configuration can also change this location, or block the repository.

mod file;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bundle_core::reference::canonical_registry;

use super::limited_map::LimitedMap;
use super::names::LookupLimit;
use super::retry::FAILED_MIRROR_PAUSE;
use super::{RegistryError, RegistryErrorReason, Repository};
use crate::clock::instant;

/// Rules of registries.conf, each for a prefix of repositories. The rules change only the server of
/// a request. References stay the same, so policies and messages never contain the location of a
/// mirror.
#[derive(Debug, Clone, Default)]
pub struct Mirrors {
    rules: Vec<RegistryRule>,
    /// Failed mirrors, shared by clones.
    failed_mirrors: Arc<Mutex<LimitedMap<String, Instant>>>,
}

/// One table `[[registry]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RegistryRule {
    /// `HOST[:PORT][/PATH]`, or `*.HOST` for all subdomains.
    prefix: String,
    /// The prefix with the canonical spelling of its host.
    canonical_prefix: String,
    /// Replacement of the prefix in the location of a request. `None` if the prefix is not
    /// replaced.
    location: Option<String>,
    insecure: bool,
    blocked: bool,
    mirrors: Vec<MirrorRule>,
}

/// One table `[[registry.mirror]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MirrorRule {
    location: String,
    insecure: bool,
    digests: bool,
    tags: bool,
}

/// Kind of access to a repository. It determines the locations to which a request is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AccessKind {
    /// Write. The only location is the repository itself.
    Write,
    /// Read by digest. Every location returns the same content.
    Digest,
    /// Read by tag, or list of tags.
    Tag,
    /// Read of a URL from an earlier response, such as the next page of a list. The text is the
    /// host of the URL. The only location is the mirror or registry with this host.
    Location(String),
}

impl AccessKind {
    /// Returns the kind of access for a path below a repository.
    pub(super) fn reading(path: &str) -> Self {
        if path.contains("sha256:") {
            Self::Digest
        } else {
            Self::Tag
        }
    }
}

impl Mirrors {
    /// Reads configurations in the format of containers-registries.conf(5), version 2. An entry in
    /// a later file overrides an entry with the same prefix.
    pub fn read(files: &[PathBuf]) -> Result<Self, RegistryError> {
        let mut rules: Vec<RegistryRule> = Vec::new();
        for path in files {
            for rule in file::read(path).map_err(|why| RegistryError {
                doing: "read the configuration of registries in",
                subject: path.display().to_string(),
                reason: RegistryErrorReason::Settings(why),
            })? {
                rules.retain(|known| known.prefix != rule.prefix);
                rules.push(rule);
            }
        }
        Ok(Self {
            rules,
            failed_mirrors: Arc::default(),
        })
    }

    /// Returns a configuration with only the rules that block registries.
    pub(super) fn blocking_only(&self) -> Self {
        let mut rules = self.rules.clone();
        rules.retain(|rule| rule.blocked);
        Self {
            rules,
            failed_mirrors: Arc::clone(&self.failed_mirrors),
        }
    }

    /// Returns the hosts for which plain HTTP is allowed if they do not support TLS.
    pub(super) fn insecure(&self) -> BTreeSet<String> {
        let host = |location: &str| location.split('/').next().unwrap_or_default().to_owned();
        let mut hosts = BTreeSet::new();
        for rule in &self.rules {
            if rule.insecure {
                hosts.insert(host(rule.location.as_ref().unwrap_or(&rule.prefix)));
            }
            hosts.extend(
                rule.mirrors
                    .iter()
                    .filter(|mirror| mirror.insecure)
                    .map(|mirror| host(&mirror.location)),
            );
        }
        hosts
    }

    /// Returns the locations to try, in order. The last location is the repository itself, or the
    /// location that replaces it in registries.conf.
    pub(super) fn locations(
        &self,
        repository: &Repository,
        wanted: &AccessKind,
    ) -> Result<Vec<Repository>, RegistryErrorReason> {
        // Another spelling of a registry must not bypass the rules.
        let name = canonical(&repository.to_string());
        let Some((rule, rest)) = self
            .rules
            .iter()
            .filter_map(|rule| Some((rule, rule.rest(&name)?)))
            .max_by_key(|(rule, _)| (rule.canonical_prefix.len(), rule.blocked))
        else {
            return Ok(vec![repository.clone()]);
        };
        if rule.blocked {
            return Err(RegistryErrorReason::Blocked {
                prefix: rule.prefix.clone(),
            });
        }
        if *wanted == AccessKind::Write {
            return Ok(vec![repository.clone()]);
        }
        let own = match &rule.location {
            Some(location) => parse_location(location, rest)?,
            None => repository.clone(),
        };
        let mut locations = Vec::new();
        for mirror in &rule.mirrors {
            let serves = match wanted {
                AccessKind::Digest => mirror.digests,
                AccessKind::Tag => mirror.tags,
                _ => true,
            };
            if serves {
                locations.push(parse_location(&mirror.location, rest)?);
            }
        }
        if let AccessKind::Location(host) = wanted {
            // A URL with the host of a mirror came from this mirror, and is valid only for this
            // mirror.
            let at = locations
                .into_iter()
                .find(|location| location.registry == *host);
            return Ok(vec![at.unwrap_or(own)]);
        }
        locations.retain(|location| !self.is_skipped(location));
        locations.push(own);
        Ok(locations)
    }

    /// Records a mirror as failed if `reason` means that the mirror cannot be reached. Later
    /// requests skip this mirror for some time, because each attempt would take seconds.
    pub(super) fn record_failure(&self, location: &Repository, reason: &RegistryErrorReason) {
        // This error means that the caller exceeds its limit of DNS lookups. It must not disable
        // the mirror for other callers.
        if let RegistryErrorReason::Unreachable { source, .. } = reason
            && source.find::<LookupLimit>().is_some()
        {
            return;
        }
        if matches!(
            reason,
            RegistryErrorReason::Unreachable { .. }
                | RegistryErrorReason::Stalled { .. }
                | RegistryErrorReason::Certificate { .. }
                | RegistryErrorReason::ClientCertificate { .. }
        ) {
            self.insert_failed(location.registry.clone());
        }
    }

    /// Records that a mirror responds, but not to a read of this repository. Later requests for the
    /// repository skip this mirror for some time.
    pub(super) fn record_stalled_repository(&self, location: &Repository) {
        self.insert_failed(location.to_string());
    }

    fn insert_failed(&self, mirror: String) {
        let mut failed_mirrors = self
            .failed_mirrors
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let bytes = mirror.len();
        failed_mirrors.insert(mirror, instant(), bytes);
    }

    fn is_skipped(&self, location: &Repository) -> bool {
        let failed_mirrors = self
            .failed_mirrors
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        [location.registry.as_str(), &location.to_string()]
            .into_iter()
            .filter_map(|mirror| failed_mirrors.get(mirror))
            .any(|since| instant().duration_since(*since) < FAILED_MIRROR_PAUSE)
    }
}

impl RegistryRule {
    /// Returns the part of `name` after the prefix of this rule. `name` is the canonical name of a
    /// repository. Returns `None` if the rule does not match.
    fn rest<'a>(&self, name: &'a str) -> Option<&'a str> {
        if let Some(domain) = self.canonical_prefix.strip_prefix("*.") {
            // The prefix matches a subdomain with any port, so the rest is the whole path.
            let end = name.find('/').unwrap_or(name.len());
            let host = name[..end].split(':').next().unwrap_or_default();
            return host
                .strip_suffix(domain)
                .is_some_and(|sub| sub.len() > 1 && sub.ends_with('.'))
                .then_some(&name[end..]);
        }
        let rest = name.strip_prefix(self.canonical_prefix.as_str())?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }
}

/// Returns `HOST[:PORT][/PATH]` with the canonical spelling of its host.
fn canonical(name: &str) -> String {
    match name.split_once('/') {
        Some((registry, path)) => format!("{}/{path}", canonical_registry(registry)),
        None => canonical_registry(name),
    }
}

fn parse_location(location: &str, rest: &str) -> Result<Repository, RegistryErrorReason> {
    let name = format!("{location}{rest}");
    name.parse().map_err(|_| {
        RegistryErrorReason::Settings(format!(
            "registries.conf maps the reference to `{name}`, which is not a repository"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrors(text: &str) -> Mirrors {
        Mirrors {
            rules: file::parse(text).unwrap(),
            failed_mirrors: Arc::default(),
        }
    }

    fn locations(mirrors: &Mirrors, name: &str, wanted: &AccessKind) -> String {
        match mirrors.locations(&name.parse().unwrap(), wanted) {
            Ok(locations) => {
                let names: Vec<_> = locations.iter().map(ToString::to_string).collect();
                names.join(" ")
            }
            Err(reason) => reason.to_string(),
        }
    }

    const CONF: &str = r#"
        [[registry]]
        prefix = "registry.example.com/team"
        location = "moved.example.com/crew"
        [[registry.mirror]]
        location = "near.example.com:5000/mirror"
        [[registry.mirror]]
        location = "tags.example.com"
        pull-from-mirror = "tag-only"
        [[registry]]
        prefix = "registry.example.com/team/secret"
        blocked = true
        [[registry]]
        prefix = "*.example.org"
        mirror-by-digest-only = true
        [[registry.mirror]]
        location = "near.example.com/org"
        insecure = true
    "#;

    #[test]
    fn longest_prefix_determines_the_locations() {
        let all = mirrors(CONF);
        for (name, wanted, expected) in [
            (
                "registry.example.com/team/web",
                AccessKind::Digest,
                "near.example.com:5000/mirror/web moved.example.com/crew/web",
            ),
            (
                "registry.example.com/team/web",
                AccessKind::Tag,
                "near.example.com:5000/mirror/web tags.example.com/web moved.example.com/crew/web",
            ),
            (
                "registry.example.com/team/web",
                AccessKind::Write,
                "registry.example.com/team/web",
            ),
            (
                "registry.example.com/team/web",
                AccessKind::Location("near.example.com:5000".to_owned()),
                "near.example.com:5000/mirror/web",
            ),
            (
                "registry.example.com/team/secret/x",
                AccessKind::Write,
                "registries.conf blocks `registry.example.com/team/secret`",
            ),
            (
                "registry.example.com/teams/web",
                AccessKind::Digest,
                "registry.example.com/teams/web",
            ),
            (
                "a.b.example.org/web",
                AccessKind::Digest,
                "near.example.com/org/web a.b.example.org/web",
            ),
            ("a.example.org/web", AccessKind::Tag, "a.example.org/web"),
            ("example.org/web", AccessKind::Digest, "example.org/web"),
            (
                "evilexample.org/web",
                AccessKind::Digest,
                "evilexample.org/web",
            ),
        ] {
            assert_eq!(
                locations(&all, name, &wanted),
                expected,
                "{name} {wanted:?}"
            );
        }
        assert_eq!(all.insecure(), ["near.example.com".to_owned()].into());
    }

    #[test]
    fn rules_apply_to_every_spelling_of_a_registry() {
        let hub = r#"
            [[registry]]
            prefix = "docker.io"
            blocked = true
            [[registry]]
            prefix = "Upper.example.com:443/team"
            blocked = true
            [[registry]]
            prefix = "upper.example.com/team"
            location = "moved.example.com/team"
        "#;
        let all = mirrors(&format!("{CONF}{hub}"));
        for name in [
            "Registry.example.com/team/secret/x",
            "registry.example.com:443/team/secret/x",
            "REGISTRY.example.com:0443/team/secret/x",
            "docker.io/a/b",
            "index.docker.io/a/b",
            "registry-1.docker.io/a/b",
            "upper.example.com/team/x",
            "upper.example.com:443/team/x",
        ] {
            let found = locations(&all, name, &AccessKind::Digest);
            assert!(found.contains("blocks"), "{name}: {found}");
        }
        for (name, expected) in [
            (
                "Registry.example.com:443/team/web",
                "near.example.com:5000/mirror/web moved.example.com/crew/web",
            ),
            (
                "A.Example.ORG/web",
                "near.example.com/org/web A.Example.ORG/web",
            ),
            (
                "registry.example.com:5000/team/secret/x",
                "registry.example.com:5000/team/secret/x",
            ),
        ] {
            let found = locations(&all, name, &AccessKind::Digest);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn unreachable_mirror_is_skipped_for_a_minute() {
        let all = mirrors(CONF);
        let failed_mirrors: Repository = "near.example.com:5000/mirror/web".parse().unwrap();
        let gone = RegistryErrorReason::Stalled {
            after: FAILED_MIRROR_PAUSE,
        };
        all.record_failure(&failed_mirrors, &RegistryErrorReason::NotFound);
        all.clone().record_failure(&failed_mirrors, &gone);
        assert_eq!(
            locations(&all, "registry.example.com/team/web", &AccessKind::Digest),
            "moved.example.com/crew/web"
        );
    }
}
