//! Image references as container runtimes read them: `nginx` means
//! `docker.io/library/nginx:latest`. References of bundles have no default registry
//! (`crate::reference`).

use std::fmt;

use crate::{
    diagnostic::{Finding, codes},
    reference::{Digest, Reference},
};

/// Registry of a reference that names no registry.
const DEFAULT_REGISTRY: &str = "docker.io";
/// Repository folder of Docker's official images.
const OFFICIAL: &str = "library/";
/// Default tag, if the reference has neither tag nor digest.
const DEFAULT_TAG: &str = "latest";

/// Image reference with the defaults of a container runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    name: String,
    explicit_registry: bool,
    tag: Option<String>,
    digest: Option<Digest>,
    /// Full reference, validated by the parser.
    reference: Reference,
}

impl ImageReference {
    /// Parses the text of an `image` field, like containerd and docker.
    pub fn parse(text: &str) -> Result<Self, Finding> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse::<Digest>()?)),
            None => (text, None),
        };
        let (name, tag) = match rest.rsplit_once(':') {
            // A `/` after the colon shows that the colon separates a registry and its port.
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (rest, None),
        };
        if is_hash(name) {
            return Err(unreadable(
                text,
                "64 hexadecimal digits are a local image ID, not a name",
            ));
        }
        let (registry, path) = match name.split_once('/') {
            Some((first, path)) if is_registry(first) => (Some(first), path),
            _ => (None, name),
        };
        let host = match registry {
            None | Some("index.docker.io") => DEFAULT_REGISTRY,
            Some(host) => host,
        };
        let official = if host == DEFAULT_REGISTRY && !path.contains('/') {
            OFFICIAL
        } else {
            ""
        };
        let full = match (tag, &digest) {
            (Some(tag), Some(digest)) => format!("{host}/{official}{path}:{tag}@{digest}"),
            (Some(tag), None) => format!("{host}/{official}{path}:{tag}"),
            (None, Some(digest)) => format!("{host}/{official}{path}@{digest}"),
            (None, None) => format!("{host}/{official}{path}:{DEFAULT_TAG}"),
        };
        let reference: Reference = full.parse().map_err(|finding: Finding| {
            // The error quotes the completed reference, and this message quotes the reference as
            // written.
            let why = finding.message.split_once("`: ").map(|(_, why)| why);
            let why = why.unwrap_or(&finding.message);
            unreadable(text, &why.replacen(official, "", 1))
        })?;
        Ok(Self {
            name: name.to_owned(),
            explicit_registry: registry.is_some(),
            tag: tag.map(str::to_owned),
            digest,
            reference,
        })
    }

    /// Returns the tag as written; `None` if the reference has no tag.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the digest as written; `None` if the reference has no digest.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Returns the tag that a runtime pulls; `None` if the reference has a digest.
    pub fn effective_tag(&self) -> Option<&str> {
        if self.digest.is_some() {
            None
        } else {
            Some(self.tag.as_deref().unwrap_or(DEFAULT_TAG))
        }
    }

    /// Returns `true` if the text names the registry.
    pub fn names_registry(&self) -> bool {
        self.explicit_registry
    }

    /// Returns the full reference for the registry client: `docker.io/library/nginx:1.25`.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// Returns the reference pinned to `digest`, with the name and tag as written:
    /// `nginx:1.25@sha256:…`.
    pub fn pinned(&self, digest: &Digest) -> String {
        match &self.tag {
            Some(tag) => format!("{}:{tag}@{digest}", self.name),
            None => format!("{}@{digest}", self.name),
        }
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reference.fmt(f)
    }
}

/// Returns `true` if the first component of a name is a registry, by docker's rule.
fn is_registry(first: &str) -> bool {
    first.contains(['.', ':'])
        || first == "localhost"
        || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn unreadable(text: &str, why: &str) -> Finding {
    let short: String = text.chars().take(200).collect();
    Finding::error(
        codes::images::UNREADABLE,
        format!(
            "`{}` is not an image reference: {why}",
            short.escape_debug()
        ),
    )
    .hint("write NAME:TAG, such as registry.example.com/team/web:1.4.0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn reads_references_like_container_runtimes() {
        for (text, full) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.25", "docker.io/library/nginx:1.25"),
            ("docker.io/nginx:1.25", "docker.io/library/nginx:1.25"),
            ("index.docker.io/nginx:1.25", "docker.io/library/nginx:1.25"),
            ("grafana/grafana:11.1.0", "docker.io/grafana/grafana:11.1.0"),
            ("localhost/web:1", "localhost/web:1"),
            ("registry:5000/web", "registry:5000/web:latest"),
            ("registry:5000/web:1", "registry:5000/web:1"),
            ("quay.io/a/b:v1.0_rc.1", "quay.io/a/b:v1.0_rc.1"),
            ("REGISTRY/web:1", "REGISTRY/web:1"),
            ("[::1]:5000/web:1", "[::1]:5000/web:1"),
        ] {
            match ImageReference::parse(text) {
                Ok(found) => assert_eq!(found.to_string(), full, "{text}"),
                // Docker accepts `REGISTRY` as a registry. The registry client of this project
                // rejects it.
                Err(_) => assert_eq!(text, "REGISTRY/web:1"),
            }
        }
        let both = ImageReference::parse(&format!("nginx:1.25@{DIGEST}")).unwrap();
        assert_eq!(
            both.to_string(),
            format!("docker.io/library/nginx:1.25@{DIGEST}")
        );
        assert_eq!((both.tag(), both.effective_tag()), (Some("1.25"), None));
        assert!(!both.names_registry());
    }

    #[test]
    fn pins_the_written_name_to_a_digest() {
        let digest: Digest = DIGEST.parse().unwrap();
        for (text, pinned) in [
            ("nginx", "nginx@"),
            ("nginx:1.25", "nginx:1.25@"),
            ("reg:5000/a/b:1", "reg:5000/a/b:1@"),
        ] {
            let image = ImageReference::parse(text).unwrap();
            assert_eq!(image.pinned(&digest), format!("{pinned}{DIGEST}"));
            let again = ImageReference::parse(&image.pinned(&digest)).unwrap();
            assert_eq!(again.pinned(&digest), image.pinned(&digest));
        }
    }

    #[test]
    fn rejects_references_that_no_runtime_accepts() {
        for text in [
            "",
            " nginx",
            "nginx ",
            "Nginx:1",
            "nginx:",
            "nginx@",
            "nginx@sha256:abc",
            "a//b",
            "*:*",
            "$(IMAGE)",
            "{{inputs.parameters.image}}",
            "https://registry.example.com/web:1",
            "quay.io/",
            "/web",
            "web:a:b",
            "web\n:1",
            &"a".repeat(64),
            &"a/".repeat(400),
        ] {
            let finding = ImageReference::parse(text).unwrap_err();
            assert!(
                finding.hint.is_some() && !finding.message.is_empty(),
                "{text}"
            );
        }
    }
}
