//! A repository in a registry.

use std::fmt;
use std::str::FromStr;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::{Digest, PinnedReference, Reference};

/// A repository in a registry, `registry.example.com/team/web`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Repository {
    pub(super) registry: String,
    pub(super) path: String,
}

impl Repository {
    /// Returns host and optional port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the path in the registry.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the reference of this digest in the repository.
    pub fn pin(&self, digest: &Digest) -> Result<PinnedReference, Finding> {
        let reference: Reference = format!("{self}@{digest}").parse()?;
        Ok(reference.pin(digest.clone()))
    }
}

impl From<&Reference> for Repository {
    fn from(reference: &Reference) -> Self {
        Self {
            registry: reference.registry().to_owned(),
            path: reference.repository().to_owned(),
        }
    }
}

impl FromStr for Repository {
    type Err = Finding;

    /// Parses `REGISTRY/REPOSITORY`, without tag and digest.
    fn from_str(text: &str) -> Result<Self, Finding> {
        // A tag is added, because a repository with a tag is a valid reference. A text that already
        // has a tag is rejected, because it then has two tags.
        match format!("{text}:x").parse::<Reference>() {
            Ok(reference) if !text.contains('@') => Ok(Self::from(&reference)),
            _ => Err(Finding::error(
                codes::reference::UNREADABLE,
                format!("`{text}` is not a repository"),
            )
            .hint("write REGISTRY/REPOSITORY, such as registry.example.com/team/web, without tag and digest")),
        }
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_repositories_with_tag_or_digest() {
        let read: Repository = "localhost:5000/team/web".parse().unwrap();
        assert_eq!(
            (read.registry(), read.path()),
            ("localhost:5000", "team/web")
        );
        assert_eq!(read.to_string(), "localhost:5000/team/web");
        let digest = Digest::of(b"x");
        assert_eq!(read.pin(&digest).unwrap().digest(), &digest);
        for text in [
            "localhost:5000/team/web:1",
            "registry.example.com",
            "web",
            "",
            "registry.example.com/web@sha256:x",
        ] {
            assert!(text.parse::<Repository>().is_err(), "{text}");
        }
    }
}
