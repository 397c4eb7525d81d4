//! Version that a Kubernetes program reports, including vendor suffixes (`v1.33.0-eks-abcdef0`,
//! `v1.36.3+k3s1`).

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// Value of `gitVersion` in a Kubernetes program. `go build` sets it with a linker flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerVersion {
    text: String,
    major: u32,
    minor: u32,
}

impl ServerVersion {
    /// Returns the major version.
    pub const fn major(&self) -> u32 {
        self.major
    }

    /// Returns the minor version.
    pub const fn minor(&self) -> u32 {
        self.minor
    }

    /// Returns the version as the server reports it, with the leading `v`.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for ServerVersion {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let usage = || {
            format!(
                "`{text}` is no version of a server: write it as v1.36.3 or v1.33.0-eks-abcdef0"
            )
        };
        // The text becomes part of the linker's arguments, which are split at blanks and quotes.
        if !text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ".+-_".contains(c))
        {
            bail!(usage());
        }
        let numbers = text.strip_prefix('v').with_context(usage)?;
        let mut parts = numbers.splitn(3, '.');
        let mut number = || {
            parts
                .next()
                .and_then(|part| part.parse().ok())
                .with_context(usage)
        };
        let (major, minor) = (number()?, number()?);
        let patch = parts.next().with_context(usage)?;
        if !patch.starts_with(|c: char| c.is_ascii_digit()) {
            bail!(usage());
        }
        Ok(Self {
            text: text.to_owned(),
            major,
            minor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_with_vendor_suffix() {
        let version: ServerVersion = "v1.33.0-eks-abcdef0".parse().unwrap();
        assert_eq!(
            (version.major(), version.minor(), version.as_str()),
            (1, 33, "v1.33.0-eks-abcdef0")
        );
        assert_eq!("v1.36.3+k3s1".parse::<ServerVersion>().unwrap().minor(), 36);
    }

    #[test]
    fn rejects_invalid_versions_and_linker_flags() {
        for bad in [
            "",
            "1.36.3",
            "v1.36",
            "v1.x.3",
            "v1.36.",
            "v1.36.3 -X main.evil=1",
            "v1.36.3'",
        ] {
            let error = bad.parse::<ServerVersion>().unwrap_err().to_string();
            assert!(
                error.contains("is no version of a server"),
                "{bad}: {error}"
            );
        }
    }
}
