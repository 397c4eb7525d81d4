//! Whether a bundle fits a server.
//! Not here: an administrator's override (review), and which APIs a bundle needs.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Minor, Range, ServerVersion};
use crate::diagnostic::{Finding, codes};

/// What a bundle says about the versions of Kubernetes that it is made for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubernetes {
    /// The minor version that it was made and tested with: every patch of it is fine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Minor>,
    /// The versions on which it is supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supported: Option<Range>,
    /// What to do beyond them.
    #[serde(default)]
    pub unsupported: Unsupported,
}

/// What to do on a version that a bundle does not support.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unsupported {
    /// Refuse it.
    #[default]
    Reject,
    /// Admit it, and warn.
    Warn,
}

impl Kubernetes {
    /// Whether the bundle says that it runs on that server.
    pub fn supports(&self, server: &ServerVersion) -> bool {
        match (&self.baseline, &self.supported) {
            (None, None) => true,
            (baseline, supported) => {
                *baseline == Some(server.minor())
                    || supported
                        .as_ref()
                        .is_some_and(|range| range.contains(server.numbers()))
            }
        }
    }

    fn is_older_than(&self, server: &ServerVersion) -> bool {
        match (&self.supported, self.baseline) {
            (Some(range), _) => range.is_below(server.numbers()),
            (None, baseline) => baseline.is_some_and(|minor| minor < server.minor()),
        }
    }
}

/// What is supported, as a person would write it: `>=1.31 <1.38`, or `1.33`.
impl fmt::Display for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.supported, self.baseline) {
            (Some(range), _) => range.fmt(f),
            (None, Some(minor)) => minor.fmt(f),
            (None, None) => f.write_str("every version"),
        }
    }
}

/// What there is to say about a bundle without a name on a server: nothing, a warning, or that it is refused.
pub fn fits(kubernetes: &Kubernetes, server: &ServerVersion) -> Option<Finding> {
    fits_named("this bundle", kubernetes, server)
}

/// The same, with the bundle named in the message: `bundle web 1.4.0`.
pub fn fits_named(
    bundle: &str,
    kubernetes: &Kubernetes,
    server: &ServerVersion,
) -> Option<Finding> {
    if kubernetes.supports(server) {
        return None;
    }
    let minor = server.minor();
    let way_out = if kubernetes.is_older_than(server) {
        format!("use a newer version of the bundle, made for {minor}")
    } else {
        format!("upgrade the cluster, or use a version of the bundle made for {minor}")
    };
    let message = format!(
        "{bundle} supports Kubernetes {kubernetes}, and this server is {server}; {way_out}"
    );
    Some(match kubernetes.unsupported {
        Unsupported::Reject => Finding::error(codes::format::UNSUPPORTED_KUBERNETES, message).hint(
            "a BundleDeployment with `spec.kubernetes.unsupported: Accept` installs it all the same, and the override is recorded",
        ),
        Unsupported::Warn => Finding::warning(codes::format::UNSUPPORTED_KUBERNETES, message),
    })
}
