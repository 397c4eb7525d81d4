//! Digests, references, and references that are pinned to a digest. Tags are resolved in
//! `bundle-oci`.

use std::{fmt, str::FromStr};

use sha2::{Digest as _, Sha256};

use crate::diagnostic::{Finding, codes};

/// sha256 content digest: `sha256:` and 64 lower-case hexadecimal digits. Other algorithms of the
/// OCI image specification are rejected, because no content of this project uses them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(String);

impl Digest {
    /// Returns the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_hash(Sha256::digest(bytes).as_slice())
    }

    /// Returns the digest for a sha256 hash.
    pub fn from_hash(hash: &[u8]) -> Self {
        Self(format!("sha256:{}", hex::encode(hash)))
    }

    /// Returns the digest as text, with the algorithm: `sha256:…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the 64 hexadecimal digits, without the algorithm.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }
}

impl FromStr for Digest {
    type Err = Finding;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let well_formed = text.strip_prefix("sha256:").is_some_and(|hex| {
            hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        });
        if well_formed {
            Ok(Self(text.to_owned()))
        } else {
            Err(Finding::error(
                codes::reference::BAD_DIGEST,
                format!("`{text}` is not a digest"),
            )
            .hint("a digest is `sha256:` followed by 64 lower-case hexadecimal digits"))
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Reference to OCI content: a registry, a repository, and a tag, a digest or both.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    /// Returns the host with the optional port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the path in the registry, without tag and digest.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the tag; `None` if the reference has only a digest.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the digest; `None` if the reference has only a tag. With tag and digest, the digest
    /// selects the content.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Returns registry and repository, such as `registry.example.com/team/web`. Signature policies
    /// match this name.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Returns the reference pinned to `digest`. The tag is kept for display.
    pub fn pin(&self, digest: Digest) -> PinnedReference {
        PinnedReference {
            reference: Self {
                digest: Some(digest.clone()),
                ..self.clone()
            },
            digest,
        }
    }

    /// Returns the pinned reference; `None` if this reference has no digest.
    pub fn pinned(&self) -> Option<PinnedReference> {
        self.digest.clone().map(|digest| self.pin(digest))
    }
}

fn unreadable(text: &str, why: &str) -> Finding {
    Finding::error(codes::reference::UNREADABLE, format!("invalid reference `{text}`: {why}"))
        .hint("write REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:…, such as registry.example.com/team/web:1.4.0")
}

/// Canonical name of Docker Hub.
pub(crate) const DOCKER_HUB: &str = "docker.io";
/// Aliases of Docker Hub.
pub(crate) const DOCKER_HUB_ALIASES: [&str; 3] = [
    "index.docker.io",
    "registry-1.docker.io",
    "registry.hub.docker.com",
];

/// Returns the canonical spelling of a registry: lower case, without a default port, and one name
/// for Docker Hub and for each IPv6 address. A rule about a registry must apply to all of its
/// spellings.
pub fn canonical_registry(registry: &str) -> String {
    let lower = registry.to_ascii_lowercase();
    let (host, port) = match lower.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (lower.as_str(), None),
    };
    let host = match host {
        alias if DOCKER_HUB_ALIASES.contains(&alias) => DOCKER_HUB.to_owned(),
        other => other
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .and_then(|address| address.parse::<std::net::Ipv6Addr>().ok())
            .map_or_else(
                || other.to_owned(),
                |address| match address.to_ipv4_mapped() {
                    // An IPv4-mapped IPv6 address and the IPv4 address reach the same host. The
                    // IPv4 address is canonical.
                    Some(address) => address.to_string(),
                    None => format!("[{address}]"),
                },
            ),
    };
    match port.map(|port| (port, port.parse::<u16>())) {
        // Port 443 is the default with TLS, and port 80 without TLS.
        None | Some((_, Ok(80 | 443))) => host,
        Some((_, Ok(port))) => format!("{host}:{port}"),
        Some((text, Err(_))) => format!("{host}:{text}"),
    }
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port))
            if !host.ends_with(':') && (!host.contains(':') || host.ends_with(']')) =>
        {
            (host, Some(port))
        }
        _ => (text, None),
    };
    let port_fits = port.is_none_or(|port| {
        port.parse::<u16>().is_ok_and(|port| port > 0) && port.bytes().all(|b| b.is_ascii_digit())
    });
    let bracketed = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok());
    // Network libraries resolve `0x7f.1` and `2130706433` as IP addresses. Comparisons of hosts do
    // not recognise these addresses, so such hosts are rejected.
    let last = host.rsplit('.').next().unwrap_or_default();
    let digits = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let number = match digits {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()),
    };
    if number && host.parse::<std::net::Ipv4Addr>().is_err() {
        return false;
    }
    let named = host.split('.').all(|label| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    });
    port_fits && (bracketed || named)
}

/// Returns `true` for a path component of the OCI distribution specification: lower-case letters
/// and digits, joined by `.`, `_`, `__` or dashes.
fn is_component(text: &str) -> bool {
    let edges = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    edges(text.bytes().next())
        && edges(text.bytes().last())
        && text.bytes().all(|b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-')
        })
        && !text.contains("..")
        && !text.contains("___")
        && !text.contains("._")
        && !text.contains("_.")
        && !text.contains("-.")
        && !text.contains(".-")
        && !text.contains("-_")
        && !text.contains("_-")
}

fn is_tag(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && !text.starts_with(['.', '-'])
}

impl FromStr for Reference {
    type Err = Finding;

    /// Parses `REGISTRY/REPOSITORY[:TAG][@DIGEST]`. There is no default registry: the first
    /// component must contain a dot or a port, or be `localhost`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > 512 {
            return Err(unreadable(
                &format!("{}…", text.chars().take(64).collect::<String>()),
                "it is longer than 512 characters",
            ));
        }
        if text.contains("://") {
            return Err(unreadable(text, "it begins with a scheme"));
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest.parse::<Digest>()?)),
            None => (text, None),
        };
        let Some((registry, path)) = name.split_once('/') else {
            return Err(unreadable(text, "it has no registry"));
        };
        if !(registry.contains(['.', ':']) || registry == "localhost") {
            return Err(unreadable(text, "it has no registry"));
        }
        if !is_registry(registry) {
            return Err(unreadable(
                text,
                &format!("`{registry}` is not a host with an optional port"),
            ));
        }
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        if repository.is_empty()
            || repository.len() > 255
            || !repository.split('/').all(is_component)
        {
            return Err(unreadable(
                text,
                &format!(
                    "`{repository}` is not a repository (lower-case letters, digits, `.`, `_`, `-`, separated by `/`)"
                ),
            ));
        }
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(unreadable(text, &format!("`{tag}` is not a tag")));
        }
        if tag.is_none() && digest.is_none() {
            return Err(unreadable(
                text,
                "it has neither a tag nor a digest, and there is no default",
            ));
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest,
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// Reference with a digest. The digest, and not a tag, determines the content.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PinnedReference {
    reference: Reference,
    digest: Digest,
}

impl PinnedReference {
    /// Returns the digest.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the reference with its digest and, if it has a tag, with its tag.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// Returns `registry/repository@sha256:…`, without the tag.
    pub fn without_tag(&self) -> String {
        format!("{}@{}", self.reference.name(), self.digest)
    }
}

impl fmt::Display for PinnedReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.without_tag())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    #[test]
    fn reads_the_usual_forms() {
        for text in [
            "registry.example.com/web:1.4.0".to_owned(),
            "localhost/web:1".to_owned(),
            "127.0.0.1:5000/team/web:v1_2".to_owned(),
            "[::1]:5000/web:1".to_owned(),
            format!("registry.example.com/a/b__c/d-e@{HEX}"),
            format!("registry.example.com/web:1.4.0@{HEX}"),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(reference.to_string(), text);
        }
    }

    #[test]
    fn rejects_incomplete_and_ambiguous_references() {
        for (text, why) in [
            ("web:1", "has no registry"),
            ("team/web:1", "has no registry"),
            ("registry.example.com/web", "neither a tag nor a digest"),
            ("https://registry.example.com/web:1", "scheme"),
            ("registry.example.com/Web:1", "not a repository"),
            ("registry.example.com/../web:1", "not a repository"),
            ("registry.example.com//web:1", "not a repository"),
            ("registry.example.com:0/web:1", "not a host"),
            // Forms of IP addresses that only some programs accept.
            ("127.1:5000/web:1", "not a host"),
            ("0x7f.0.0.1:5000/web:1", "not a host"),
            ("0x7f000001:5000/web:1", "not a host"),
            ("2130706433:5000/web:1", "not a host"),
            ("0177.0.0.1:5000/web:1", "not a host"),
            ("127.0.0.256:5000/web:1", "not a host"),
            ("registry.example.com.:5000/web:1", "not a host"),
            ("registry.example.com/web:-1", "not a tag"),
            ("registry.example.com/web@sha256:abc", "not a digest"),
            ("registry.example.com/web@sha512:abc", "not a digest"),
            ("", "has no registry"),
        ] {
            let finding = text.parse::<Reference>().unwrap_err();
            assert!(finding.message.contains(why), "{text}: {finding}");
        }
    }

    #[test]
    fn pinned_reference_keeps_tag_for_display_only() {
        let reference: Reference = "registry.example.com/web:1".parse().unwrap();
        let pinned = reference.pin(HEX.parse().unwrap());
        assert_eq!(
            pinned.to_string(),
            format!("registry.example.com/web@{HEX}")
        );
        assert_eq!(pinned.reference().tag(), Some("1"));
    }
}
