//! Mirrors of repositories from registries.conf: mirrors are tried before the location of the
//! repository, which the configuration can change or block.

mod file;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::remembered::make_room;
use super::{Reason, RegistryError, Repository};
use crate::clock::instant;

/// Time for which a mirror that failed is not used.
const REST: Duration = Duration::from_secs(60);

/// Rules of registries.conf for prefixes of repositories. References do not change: policies and
/// messages never contain the location of a mirror.
#[derive(Debug, Clone, Default)]
pub struct Mirrors {
    rules: Vec<Rule>,
    /// Failed mirrors, shared by clones.
    dead: Arc<Mutex<HashMap<String, Instant>>>,
}

/// One `[[registry]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    /// `HOST[:PORT][/PATH]`, or `*.HOST` for all subdomains.
    prefix: String,
    /// Replacement of the prefix; `None` keeps it.
    location: Option<String>,
    insecure: bool,
    blocked: bool,
    mirrors: Vec<Mirror>,
}

/// One `[[registry.mirror]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirror {
    location: String,
    insecure: bool,
    digests: bool,
    tags: bool,
}

/// Kind of access to a repository, which determines the locations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Write: only the repository itself.
    Writing,
    /// Read by digest: every location returns the same content.
    Digest,
    /// Read by tag, or list of tags.
    Tag,
    /// Location that an earlier response named: the one with this host.
    At(String),
}

impl Wanted {
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
    /// Reads configurations as containers-registries.conf(5) describes them (version 2). The later
    /// file overrides entries with the same prefix.
    pub fn read(files: &[PathBuf]) -> Result<Self, RegistryError> {
        let mut rules: Vec<Rule> = Vec::new();
        for path in files {
            for rule in file::read(path).map_err(|why| RegistryError {
                doing: "read the configuration of registries in",
                subject: path.display().to_string(),
                reason: Reason::Settings(why),
            })? {
                rules.retain(|known| known.prefix != rule.prefix);
                rules.push(rule);
            }
        }
        Ok(Self {
            rules,
            dead: Arc::default(),
        })
    }

    /// Returns only the rules that block registries.
    pub(super) fn blocking_only(&self) -> Self {
        let mut rules = self.rules.clone();
        rules.retain(|rule| rule.blocked);
        Self {
            rules,
            dead: Arc::clone(&self.dead),
        }
    }

    /// Returns the hosts for which plain HTTP is allowed if they do not speak TLS.
    pub(super) fn insecure(&self) -> BTreeSet<String> {
        let host = |place: &str| place.split('/').next().unwrap_or_default().to_owned();
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

    /// Returns the locations to try, in order. The last one is the repository's own.
    pub(super) fn places(
        &self,
        repository: &Repository,
        wanted: &Wanted,
    ) -> Result<Vec<Repository>, Reason> {
        let name = repository.to_string();
        let Some((rule, rest)) = self
            .rules
            .iter()
            .filter_map(|rule| Some((rule, rule.rest(&name)?)))
            .max_by_key(|(rule, _)| rule.prefix.len())
        else {
            return Ok(vec![repository.clone()]);
        };
        if rule.blocked {
            return Err(Reason::Blocked {
                prefix: rule.prefix.clone(),
            });
        }
        if *wanted == Wanted::Writing {
            return Ok(vec![repository.clone()]);
        }
        let own = match &rule.location {
            Some(location) => place(location, rest)?,
            None => repository.clone(),
        };
        let mut places = Vec::new();
        for mirror in &rule.mirrors {
            let serves = match wanted {
                Wanted::Digest => mirror.digests,
                Wanted::Tag => mirror.tags,
                _ => true,
            };
            if serves {
                places.push(place(&mirror.location, rest)?);
            }
        }
        if let Wanted::At(host) = wanted {
            // A URL with a mirror's host came from that mirror and is valid only there.
            let at = places.into_iter().find(|place| place.registry == *host);
            return Ok(vec![at.unwrap_or(own)]);
        }
        places.retain(|place| !self.rests(&place.registry));
        places.push(own);
        Ok(places)
    }

    /// Skips a mirror that did not respond, as each attempt costs seconds.
    pub(super) fn failed(&self, place: &Repository, reason: &Reason) {
        if matches!(
            reason,
            Reason::Unreachable { .. }
                | Reason::Stalled { .. }
                | Reason::Certificate { .. }
                | Reason::ClientCertificate { .. }
        ) {
            let mut dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
            make_room(&mut dead);
            dead.insert(place.registry.clone(), instant());
        }
    }

    fn rests(&self, host: &str) -> bool {
        let dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        dead.get(host)
            .is_some_and(|since| instant().duration_since(*since) < REST)
    }
}

impl Rule {
    /// Returns the rest of a repository's name after the prefix, if the name has it.
    fn rest<'a>(&self, name: &'a str) -> Option<&'a str> {
        if let Some(domain) = self.prefix.strip_prefix("*.") {
            // A subdomain with any port: the whole path is the rest.
            let end = name.find('/').unwrap_or(name.len());
            let host = name[..end].split(':').next().unwrap_or_default();
            return host
                .strip_suffix(domain)
                .is_some_and(|sub| sub.len() > 1 && sub.ends_with('.'))
                .then_some(&name[end..]);
        }
        let rest = name.strip_prefix(self.prefix.as_str())?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }
}

fn place(location: &str, rest: &str) -> Result<Repository, Reason> {
    let name = format!("{location}{rest}");
    name.parse().map_err(|_| {
        Reason::Settings(format!(
            "the configuration of registries leads to `{name}`, which is not a repository"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirrors(text: &str) -> Mirrors {
        Mirrors {
            rules: file::parse(text).unwrap(),
            dead: Arc::default(),
        }
    }

    fn places(mirrors: &Mirrors, name: &str, wanted: &Wanted) -> String {
        match mirrors.places(&name.parse().unwrap(), wanted) {
            Ok(places) => {
                let names: Vec<_> = places.iter().map(ToString::to_string).collect();
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
                Wanted::Digest,
                "near.example.com:5000/mirror/web moved.example.com/crew/web",
            ),
            (
                "registry.example.com/team/web",
                Wanted::Tag,
                "near.example.com:5000/mirror/web tags.example.com/web moved.example.com/crew/web",
            ),
            (
                "registry.example.com/team/web",
                Wanted::Writing,
                "registry.example.com/team/web",
            ),
            (
                "registry.example.com/team/web",
                Wanted::At("near.example.com:5000".to_owned()),
                "near.example.com:5000/mirror/web",
            ),
            (
                "registry.example.com/team/secret/x",
                Wanted::Writing,
                "the configuration of registries blocks `registry.example.com/team/secret`",
            ),
            (
                "registry.example.com/teams/web",
                Wanted::Digest,
                "registry.example.com/teams/web",
            ),
            (
                "a.b.example.org/web",
                Wanted::Digest,
                "near.example.com/org/web a.b.example.org/web",
            ),
            ("a.example.org/web", Wanted::Tag, "a.example.org/web"),
            ("example.org/web", Wanted::Digest, "example.org/web"),
            ("evilexample.org/web", Wanted::Digest, "evilexample.org/web"),
        ] {
            assert_eq!(places(&all, name, &wanted), expected, "{name} {wanted:?}");
        }
        assert_eq!(all.insecure(), ["near.example.com".to_owned()].into());
    }

    #[test]
    fn unreachable_mirror_is_skipped_for_a_minute() {
        let all = mirrors(CONF);
        let dead: Repository = "near.example.com:5000/mirror/web".parse().unwrap();
        let gone = Reason::Stalled { after: REST };
        all.failed(&dead, &Reason::NotFound);
        all.clone().failed(&dead, &gone);
        assert_eq!(
            places(&all, "registry.example.com/team/web", &Wanted::Digest),
            "moved.example.com/crew/web"
        );
    }
}
