//! Kubernetes releases from which the control plane of a scenario can be built.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use super::Tool;

/// Variable with the default release of clusters.
pub const RELEASE_VARIABLE: &str = "E2E_KUBERNETES";

/// Minor release of Kubernetes. The harness can build its API server and controller manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KubernetesRelease {
    /// Oldest supported release.
    Oldest,
    /// Newest supported release.
    #[default]
    Newest,
}

impl KubernetesRelease {
    /// Returns the release in `E2E_KUBERNETES`; the newest if it is not set. Any other value is an
    /// error.
    pub fn from_environment() -> Result<Self> {
        match std::env::var_os(RELEASE_VARIABLE) {
            None => Ok(Self::default()),
            Some(value) => value
                .to_string_lossy()
                .parse()
                .with_context(|| format!("cannot read the variable {RELEASE_VARIABLE}")),
        }
    }

    /// Returns the API server of the release.
    pub const fn api_server(self) -> Tool {
        match self {
            Self::Oldest => Tool::OldestKubeApiserver,
            Self::Newest => Tool::KubeApiserver,
        }
    }

    /// Returns the controller manager of the release.
    pub const fn controller_manager(self) -> Tool {
        match self {
            Self::Oldest => Tool::OldestKubeControllerManager,
            Self::Newest => Tool::KubeControllerManager,
        }
    }

    /// Returns the flags with which the API server of the release has all APIs that scenarios use.
    pub(crate) const fn api_server_flags(self) -> &'static [&'static str] {
        match self {
            // Mutating policies are an alpha feature of 1.33, and are enabled by default in 1.36.
            Self::Oldest => &[
                "--feature-gates=MutatingAdmissionPolicy=true",
                "--runtime-config=admissionregistration.k8s.io/v1alpha1=true",
            ],
            Self::Newest => &[],
        }
    }

    /// Returns the `apiVersion` of `MutatingAdmissionPolicy` in the release.
    pub const fn mutating_policy_version(self) -> &'static str {
        match self {
            Self::Oldest => "admissionregistration.k8s.io/v1alpha1",
            Self::Newest => "admissionregistration.k8s.io/v1",
        }
    }
}

impl fmt::Display for KubernetesRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Oldest => "1.33",
            Self::Newest => "1.36",
        })
    }
}

impl FromStr for KubernetesRelease {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        for release in [Self::Oldest, Self::Newest] {
            if release.to_string() == text {
                return Ok(release);
            }
        }
        bail!(
            "the harness has no Kubernetes `{text}`; write {} or {}",
            Self::Oldest,
            Self::Newest
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_match_the_go_modules() {
        for release in [KubernetesRelease::Oldest, KubernetesRelease::Newest] {
            assert_eq!(
                release.to_string().parse::<KubernetesRelease>().unwrap(),
                release
            );
            for tool in [release.api_server(), release.controller_manager()] {
                let version = super::super::build::module_version_of(tool).unwrap();
                assert_eq!(
                    format!("{}.{}", version.major(), version.minor()),
                    release.to_string()
                );
            }
        }
        assert!("1.20".parse::<KubernetesRelease>().is_err());
    }
}
