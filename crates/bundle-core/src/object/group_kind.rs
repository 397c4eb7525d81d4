//! API group and kind, without version.

use std::fmt;

/// API group and kind: `Deployment.apps` or `ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Name of the kind, such as `Deployment`.
    pub kind: String,
}

impl GroupKind {
    /// Returns the pair of group and kind.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
        }
    }

    /// Parses `Kind.group` or `Kind`.
    pub fn parse(text: &str) -> Self {
        let (kind, group) = text.split_once('.').unwrap_or((text, ""));
        Self::new(group, kind)
    }

    /// Returns the kind in the key of an object, which is the text of an [`super::ObjectId`], such
    /// as `Deployment.apps/team-a/web`.
    pub fn of_key(key: &str) -> Self {
        Self::parse(key.split('/').next().unwrap_or_default())
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}
