//! Compatibility of a bundle with the version of a server.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Minor, Range, ServerVersion};
use crate::diagnostic::{Finding, codes};

/// Kubernetes versions that a bundle supports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubernetes {
    /// Minor version with which the bundle was developed and tested. All patches of this version
    /// are supported. `None` if the bundle declares no baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Minor>,
    /// Range of supported versions; `None` if the bundle declares no range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supported: Option<Range>,
    /// Handling of unsupported versions.
    #[serde(default)]
    pub unsupported: Unsupported,
}

/// Handling of a Kubernetes version that a bundle does not support.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unsupported {
    /// The content is rejected.
    #[default]
    Reject,
    /// The content is admitted with a warning.
    Warn,
}

impl Kubernetes {
    /// Returns `true` if the server's version is the baseline or in the supported range. Also
    /// returns `true` if the bundle declares no baseline and no range.
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

    /// Returns the version for rendering templates: the baseline, or the newest supported minor
    /// version with its first supported patch. Returns `None` if no minor version between `oldest`
    /// and `newest` is supported.
    pub fn render_version(&self, oldest: Minor, newest: Minor) -> Option<[u64; 3]> {
        if let Some(Minor(major, minor)) = self.baseline {
            return Some([major, minor, 0]);
        }
        let Some(supported) = &self.supported else {
            return Some([newest.0, newest.1, 0]);
        };
        (oldest.1..=newest.1).rev().find_map(|minor| {
            supported.first_within([newest.0, minor, 0], [newest.0, minor + 1, 0])
        })
    }

    fn is_older_than(&self, server: &ServerVersion) -> bool {
        match (&self.supported, self.baseline) {
            (Some(range), _) => range.is_below(server.numbers()),
            (None, baseline) => baseline.is_some_and(|minor| minor < server.minor()),
        }
    }
}

/// Supported versions, as written in bundle.yaml: `>=1.31 <1.38`, or `1.33`.
impl fmt::Display for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.supported, self.baseline) {
            (Some(range), _) => range.fmt(f),
            (None, Some(minor)) => minor.fmt(f),
            (None, None) => f.write_str("every version"),
        }
    }
}

/// Returns a warning or an error if the server's version is not supported. Otherwise returns
/// `None`. The message does not name the bundle.
pub fn fits(kubernetes: &Kubernetes, server: &ServerVersion) -> Option<Finding> {
    fits_named("this bundle", kubernetes, server)
}

/// Like [`fits`], with the name of the bundle in the message: `bundle web 1.4.0`.
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
        format!("use a newer version of the bundle that supports {minor}")
    } else {
        format!("upgrade the cluster, or use a version of the bundle that supports {minor}")
    };
    let message = format!(
        "{bundle} supports Kubernetes {kubernetes}, but the version of the API server is {server}; {way_out}"
    );
    Some(match kubernetes.unsupported {
        Unsupported::Reject => Finding::error(codes::format::UNSUPPORTED_KUBERNETES, message).hint(
            "to install the bundle anyway, set `spec.kubernetes.unsupported: Accept` in the BundleDeployment",
        ),
        Unsupported::Warn => Finding::warning(codes::format::UNSUPPORTED_KUBERNETES, message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Severity;

    fn made_for(baseline: Option<&str>, supported: Option<&str>) -> Kubernetes {
        Kubernetes {
            baseline: baseline.map(|text| text.parse().unwrap()),
            supported: supported.map(|text| Range::parse(text).unwrap()),
            unsupported: Unsupported::Reject,
        }
    }

    #[test]
    fn ignores_vendor_suffixes() {
        let kubernetes = made_for(None, Some(">=1.31 <1.38"));
        for (version, fine) in [
            ("v1.31.0", true),
            ("v1.31.0-rc.1", true),
            ("v1.31.2-eks-1552ad0", true),
            ("v1.37.9-gke.1282000", true),
            ("v1.36.1+k3s1", true),
            ("v1.31+", true),
            ("v1.30.14-eks-1552ad0", false),
            ("v1.38.0", false),
        ] {
            let server = ServerVersion::parse(version).unwrap();
            assert_eq!(fits(&kubernetes, &server).is_none(), fine, "{version}");
        }
    }

    #[test]
    fn supports_every_patch_of_the_baseline() {
        let kubernetes = made_for(Some("1.33"), Some(">=1.33.4 <1.35"));
        for (version, fine) in [
            ("v1.33.0", true),
            ("v1.34.9", true),
            ("v1.32.9", false),
            ("v1.35.0", false),
        ] {
            let server = ServerVersion::parse(version).unwrap();
            assert_eq!(kubernetes.supports(&server), fine, "{version}");
        }
        let only = made_for(Some("1.33"), None);
        assert!(only.supports(&ServerVersion::parse("v1.33.7").unwrap()));
        let newer = fits(&only, &ServerVersion::parse("v1.34.0").unwrap()).unwrap();
        assert!(
            newer
                .message
                .ends_with("use a newer version of the bundle that supports 1.34"),
            "{newer}"
        );
        assert!(made_for(None, None).supports(&ServerVersion::parse("v9.9").unwrap()));
    }

    #[test]
    fn templates_are_rendered_for_the_newest_supported_version() {
        let (oldest, newest) = (Minor(1, 16), Minor(1, 37));
        for (baseline, supported, expected) in [
            (Some("1.33"), Some(">=1.31"), Some([1, 33, 0])),
            (None, None, Some([1, 37, 0])),
            (None, Some(">=1.31"), Some([1, 37, 0])),
            (None, Some("<1.26"), Some([1, 25, 0])),
            (None, Some(">=1.20 <=1.25.4"), Some([1, 25, 0])),
            (None, Some("=1.24.7"), Some([1, 24, 7])),
            (None, Some("<1.10"), None),
        ] {
            let kubernetes = made_for(baseline, supported);
            assert_eq!(
                kubernetes.render_version(oldest, newest),
                expected,
                "{supported:?}"
            );
        }
    }

    #[test]
    fn message_names_range_version_and_override() {
        let mut kubernetes = made_for(Some("1.33"), Some(">=1.31 <1.38"));
        let old = ServerVersion::parse("v1.30.2-eks-1552ad0").unwrap();
        let finding = fits_named("bundle web 1.4.0", &kubernetes, &old).unwrap();
        assert_eq!(
            finding.message,
            "bundle web 1.4.0 supports Kubernetes >=1.31 <1.38, but the version of the API server is v1.30.2-eks-1552ad0; \
             upgrade the cluster, or use a version of the bundle that supports 1.30"
        );
        assert_eq!(finding.severity, Severity::Error);
        kubernetes.unsupported = Unsupported::Warn;
        assert_eq!(fits(&kubernetes, &old).unwrap().severity, Severity::Warning);
    }
}
