//! Computes the new references of images that are copied below another registry prefix. Also
//! generates mirror configurations for the clusters that pull these images.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::{Digest, Reference};

/// Prefix (a registry and a path) below which images are stored. The original reference becomes a
/// part of the new reference.
///
/// `registry.example.com/team/web` becomes `PREFIX/registry.example.com/team/web`. An underscore
/// separates the host and its port. Hosts cannot contain underscores, so two registries never share
/// a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relocation {
    registry: String,
    prefix: Option<String>,
}

/// An original registry and its mirror.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegistryMirror {
    /// Registry in references.
    pub registry: String,
    /// Registry of the mirror.
    pub host: String,
    /// Path of the repositories in the mirror.
    pub path: String,
}

impl FromStr for Relocation {
    type Err = Finding;

    /// Parses `REGISTRY[/PREFIX]`.
    fn from_str(text: &str) -> Result<Self, Finding> {
        let unusable = || {
            Finding::error(
                codes::usage::BAD_ARGUMENT,
                format!("`{text}` is not a registry with an optional prefix"),
            )
            .hint("write REGISTRY or REGISTRY/PREFIX, such as registry.example.com/mirror, without tag and digest")
        };
        let text = text.strip_suffix('/').unwrap_or(text);
        let (registry, prefix) = match text.split_once('/') {
            Some((registry, prefix)) => (registry, Some(prefix.to_owned())),
            None => (text, None),
        };
        // The prefix is valid if a repository below it is valid.
        let path = prefix.as_deref().unwrap_or("x");
        let reference: Reference = format!("{registry}/{path}:x")
            .parse()
            .map_err(|_| unusable())?;
        if reference.repository() != path {
            return Err(unusable());
        }
        Ok(Self {
            registry: registry.to_owned(),
            prefix,
        })
    }
}

impl fmt::Display for Relocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.registry)?;
        match &self.prefix {
            Some(prefix) => write!(f, "/{prefix}"),
            None => Ok(()),
        }
    }
}

impl Relocation {
    /// Returns the new reference of an image. The tag is kept. If the image has no tag, the digest
    /// is used.
    pub fn of(&self, origin: &Reference, digest: &Digest) -> Result<Reference, Finding> {
        let name = match origin.tag() {
            Some(tag) => format!(":{tag}"),
            None => format!("@{digest}"),
        };
        format!(
            "{}/{}/{}{name}",
            self.registry,
            self.path(origin.registry()),
            origin.repository()
        )
        .parse()
        .map_err(|finding: Finding| Finding {
            message: format!(
                "{origin} cannot be stored below {self}: {}",
                finding.message
            ),
            ..finding
        })
    }

    /// Returns the mirror of a registry.
    pub fn mirror(&self, registry: &str) -> RegistryMirror {
        RegistryMirror {
            registry: registry.to_owned(),
            host: self.registry.clone(),
            path: self.path(registry),
        }
    }

    fn path(&self, registry: &str) -> String {
        match &self.prefix {
            Some(prefix) => format!("{prefix}/{}", component(registry)),
            None => component(registry),
        }
    }
}

/// Returns a registry as one path component: lower case, with an underscore before the port.
fn component(registry: &str) -> String {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, format!("_{port}")),
        _ => (registry, String::new()),
    };
    let address = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match address.and_then(|text| text.parse::<Ipv6Addr>().ok()) {
        Some(address) => {
            let groups = address.segments().map(|group| format!("{group:x}"));
            format!("v6__{}{port}", groups.join("-"))
        }
        None => format!("{}{port}", host.to_ascii_lowercase()),
    }
}

impl RegistryMirror {
    /// Returns an entry of `registries.conf` for CRI-O, podman and skopeo.
    pub fn registries_conf(&self, insecure: bool) -> String {
        let insecure = if insecure { "insecure = true\n" } else { "" };
        format!(
            "[[registry]]\nprefix = \"{}\"\nlocation = \"{}/{}\"\n{insecure}",
            self.registry, self.host, self.path
        )
    }

    /// Returns the folder below `certs.d` in which containerd reads
    /// [`hosts_toml`](Self::hosts_toml).
    pub fn hosts_folder(&self) -> String {
        match self.registry.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => format!("{host}_{port}_"),
            _ => self.registry.clone(),
        }
    }

    /// Returns a `hosts.toml` for containerd.
    pub fn hosts_toml(&self, insecure: bool) -> String {
        let server = if self.registry == "docker.io" {
            "registry-1.docker.io"
        } else {
            &self.registry
        };
        let scheme = if insecure { "http" } else { "https" };
        format!(
            "server = \"https://{server}\"\n\n[host.\"{scheme}://{}/v2/{}\"]\ncapabilities = [\"pull\", \"resolve\"]\noverride_path = true\n",
            self.host, self.path
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_image_gets_a_unique_reference() {
        let digest = Digest::of(b"x");
        let to: Relocation = "mirror.example.com:5000/air/gap".parse().unwrap();
        let mut seen = BTreeSet::new();
        for (origin, place) in [
            (
                "docker.io/library/nginx:1.27",
                "docker.io/library/nginx:1.27",
            ),
            (
                "registry.example.com/team/web:1",
                "registry.example.com/team/web:1",
            ),
            (
                "registry.example.com:443/team/web:1",
                "registry.example.com_443/team/web:1",
            ),
            ("localhost:5000/a:1", "localhost_5000/a:1"),
            ("[::1]:5000/a:1", "v6__0-0-0-0-0-0-0-1_5000/a:1"),
            (
                &format!("registry.example.com/a@{digest}"),
                &format!("registry.example.com/a@{digest}"),
            ),
        ] {
            let origin: Reference = origin.parse().unwrap();
            let placed = to.of(&origin, &digest).unwrap().to_string();
            assert_eq!(placed, format!("mirror.example.com:5000/air/gap/{place}"));
            assert!(seen.insert(placed));
        }
        let bare: Relocation = "localhost:5000".parse().unwrap();
        let placed = bare.of(&"a.b/c:1".parse().unwrap(), &digest).unwrap();
        assert_eq!(placed.to_string(), "localhost:5000/a.b/c:1");
    }

    #[test]
    fn rejects_invalid_prefixes() {
        for text in [
            "",
            "mirror",
            "mirror.example.com/a:1",
            "mirror.example.com/A",
            "mirror.example.com//",
            "https://mirror.example.com",
        ] {
            assert!(text.parse::<Relocation>().is_err(), "{text}");
        }
        let to: Relocation = format!("mirror.example.com/{}", "p".repeat(200))
            .parse()
            .unwrap();
        let long: Reference = format!("registry.example.com/{}:1", "r".repeat(100))
            .parse()
            .unwrap();
        let finding = to.of(&long, &Digest::of(b"x")).unwrap_err();
        assert!(
            finding.message.contains("cannot be stored below"),
            "{finding}"
        );
    }

    #[test]
    fn writes_mirror_configuration_for_crio_and_containerd() {
        let to: Relocation = "mirror.example.com:5000/gap".parse().unwrap();
        let mirror = to.mirror("docker.io");
        assert_eq!(
            mirror.hosts_toml(false),
            "server = \"https://registry-1.docker.io\"\n\n[host.\"https://mirror.example.com:5000/v2/gap/docker.io\"]\ncapabilities = [\"pull\", \"resolve\"]\noverride_path = true\n"
        );
        assert_eq!(
            mirror.registries_conf(true),
            "[[registry]]\nprefix = \"docker.io\"\nlocation = \"mirror.example.com:5000/gap/docker.io\"\ninsecure = true\n"
        );
        assert_eq!(
            to.mirror("localhost:5000").hosts_folder(),
            "localhost_5000_"
        );
    }
}
