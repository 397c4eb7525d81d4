//! Version of a Kubernetes server, as `/version` returns it: `v1.30.2-eks-1552ad0`, `1.29+`,
//! `v1.31.4+k3s1`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::diagnostic::{Finding, codes};

/// The oldest minor version of Kubernetes that bundle-webhook supports.
pub const OLDEST_SERVER: Minor = Minor(1, 33);

/// Version of a server. Only major, minor and patch are compared. The suffix of the vendor is kept
/// for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerVersion {
    text: String,
    numbers: [u64; 3],
}

impl ServerVersion {
    /// Parses `gitVersion` of `/version`.
    pub fn parse(text: &str) -> Result<Self, Finding> {
        let cannot = || {
            Finding::error(
                codes::format::BAD_VERSION,
                format!("`{text}` is not a Kubernetes version"),
            )
            .hint("write a version such as `1.31`, `v1.31.4` or `v1.31.4-eks-a1b2c3d`")
        };
        let trimmed = text.trim();
        let rest = trimmed.strip_prefix('v').unwrap_or(trimmed);
        let (core, tail) = rest.split_at(
            rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))
                .unwrap_or(rest.len()),
        );
        if !(tail.is_empty() || tail.starts_with(['-', '+', '_'])) {
            return Err(cannot());
        }
        let numbers: Vec<u64> = core
            .split('.')
            .map(number)
            .collect::<Option<_>>()
            .ok_or_else(cannot)?;
        let numbers = match numbers[..] {
            [major, minor] => [major, minor, 0],
            [major, minor, patch] => [major, minor, patch],
            _ => return Err(cannot()),
        };
        Ok(Self {
            text: trimmed.to_owned(),
            numbers,
        })
    }

    /// Returns true if the server has the fields that bundle-webhook requires.
    pub fn is_supported(&self) -> bool {
        self.minor() >= OLDEST_SERVER
    }

    /// Returns the text that the server reported.
    pub fn as_reported(&self) -> &str {
        &self.text
    }

    /// Returns major, minor and patch.
    pub fn numbers(&self) -> [u64; 3] {
        self.numbers
    }

    /// Returns the minor version.
    pub fn minor(&self) -> Minor {
        Minor(self.numbers[0], self.numbers[1])
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses a number without sign or white space.
pub(super) fn number(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// Minor version with all of its patches: `1.33`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minor(pub u64, pub u64);

impl FromStr for Minor {
    type Err = Finding;

    fn from_str(text: &str) -> Result<Self, Finding> {
        let parts = text.split_once('.');
        parts
            .and_then(|(major, minor)| Some(Self(number(major)?, number(minor)?)))
            .ok_or_else(|| {
                Finding::error(
                    codes::format::BAD_VERSION,
                    format!("`{text}` is not a minor version of Kubernetes"),
                )
                .hint("write a minor version in quotes, with one dot: `\"1.33\"`")
            })
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Serialize for Minor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Minor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_that_servers_report() {
        for (text, numbers) in [
            ("v1.36.3", [1, 36, 3]),
            ("v1.30.2-eks-1552ad0", [1, 30, 2]),
            ("v1.29.3-gke.1282000", [1, 29, 3]),
            ("v1.31.4+k3s1", [1, 31, 4]),
            ("v1.30.1_coreos.0", [1, 30, 1]),
            ("v1.32.0-rc.1", [1, 32, 0]),
            ("1.29+", [1, 29, 0]),
            ("1.29", [1, 29, 0]),
            (" v1.28.15+rke2r1 ", [1, 28, 15]),
        ] {
            let version = ServerVersion::parse(text).unwrap();
            assert_eq!(version.numbers(), numbers, "{text}");
            assert_eq!(version.to_string(), text.trim());
        }
    }

    #[test]
    fn rejects_texts_that_are_no_version() {
        for text in [
            "",
            "v",
            "latest",
            "1",
            "1.x",
            "1.2.3.4",
            "v1.+3",
            "1.99999999999999999999",
            "1.30~2",
        ] {
            assert!(ServerVersion::parse(text).is_err(), "{text}");
        }
        assert!("1.33".parse::<Minor>().is_ok());
        for text in ["1", "1.33.1", "v1.33", "1.+3", ""] {
            assert!(text.parse::<Minor>().is_err(), "{text}");
        }
    }
}
