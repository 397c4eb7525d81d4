//! One repository in one registry: what every request is about.
//! Not here: tags and digests in it (bundle_core::reference).

use std::fmt;
use std::str::FromStr;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::{Digest, PinnedReference, Reference};

/// One repository in one registry, `registry.example.com/team/web`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Repository {
    pub(super) registry: String,
    pub(super) path: String,
}

impl Repository {
    /// Host and optional port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Path inside the registry.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The content of that digest in here.
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

    /// Reads `REGISTRY/REPOSITORY`, without tag and digest.
    fn from_str(text: &str) -> Result<Self, Finding> {
        // A tag is added to make a reference of it; where there is one already, two do not parse.
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
    fn a_repository_has_neither_tag_nor_digest() {
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
