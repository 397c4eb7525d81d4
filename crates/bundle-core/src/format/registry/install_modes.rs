//! Install modes of an operator, and the namespaces that it watches.

use std::collections::BTreeSet;

use super::csv::InstallMode;

/// Mode of an operator that watches all namespaces.
pub(super) const ALL_NAMESPACES: &str = "AllNamespaces";
/// Mode of an operator that watches the namespace that it runs in.
const OWN_NAMESPACE: &str = "OwnNamespace";
/// Mode of an operator that watches one other namespace.
const SINGLE_NAMESPACE: &str = "SingleNamespace";
/// Mode of an operator that watches several namespaces.
const MULTI_NAMESPACE: &str = "MultiNamespace";

/// Namespaces that an operator watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TargetNamespaces {
    /// The operator watches all namespaces.
    All,
    /// The operator watches these namespaces, without duplicates, in the given order.
    Listed(Vec<String>),
}

impl TargetNamespaces {
    /// Returns the value of annotation `olm.targetNamespaces`, which is empty for all namespaces.
    pub(super) fn annotation(&self) -> String {
        self.listed().join(",")
    }

    /// Returns the listed namespaces. The result is empty if the operator watches all namespaces.
    pub(super) fn listed(&self) -> &[String] {
        match self {
            Self::All => &[],
            Self::Listed(namespaces) => namespaces,
        }
    }
}

/// Install modes that an operator supports.
pub(super) struct SupportedModes<'a>(BTreeSet<&'a str>);

impl<'a> SupportedModes<'a> {
    pub(super) fn new(modes: &'a [InstallMode]) -> Self {
        let supported = modes.iter().filter(|mode| mode.supported);
        Self(supported.map(|mode| mode.kind.as_str()).collect())
    }

    /// Returns `true` if the operator supports none of the four install modes.
    pub(super) fn is_empty(&self) -> bool {
        let known = [
            ALL_NAMESPACES,
            OWN_NAMESPACE,
            SINGLE_NAMESPACE,
            MULTI_NAMESPACE,
        ];
        !known.iter().any(|mode| self.has(mode))
    }

    pub(super) fn has(&self, mode: &str) -> bool {
        self.0.contains(mode)
    }

    /// Returns `true` if the operator can only watch all namespaces.
    pub(super) fn is_all_namespaces_only(&self) -> bool {
        self.0.len() == 1 && self.has(ALL_NAMESPACES)
    }

    /// Returns the modes in the form of RukPak's messages: `[AllNamespaces OwnNamespace]`.
    pub(super) fn listed(&self) -> String {
        in_brackets(&self.0.iter().copied().collect::<Vec<_>>())
    }

    /// Returns the namespaces that the operator watches without a configuration; `None` if the
    /// operator requires a configuration.
    pub(super) fn default(&self) -> Option<TargetNamespaces> {
        self.has(ALL_NAMESPACES).then_some(TargetNamespaces::All)
    }

    /// Returns example namespaces, for which the objects are rendered while the configuration is
    /// unknown.
    pub(super) fn example(&self, namespace: &str) -> TargetNamespaces {
        self.default()
            .unwrap_or_else(|| TargetNamespaces::Listed(vec![namespace.to_owned()]))
    }

    /// Returns `true` if the operator supports exactly these namespaces while it runs in
    /// `namespace`.
    pub(super) fn support(&self, targets: &[String], namespace: &str) -> bool {
        let has_own = targets.iter().any(|target| target == namespace);
        match targets {
            [] => false,
            [_] if has_own => self.has(OWN_NAMESPACE),
            [_] => self.has(SINGLE_NAMESPACE),
            _ => self.has(MULTI_NAMESPACE) && (!has_own || self.has(OWN_NAMESPACE)),
        }
    }
}

/// Returns the texts as Go prints a list.
pub(super) fn in_brackets(texts: &[impl AsRef<str>]) -> String {
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(supported: &[&str]) -> Vec<InstallMode> {
        [
            ALL_NAMESPACES,
            OWN_NAMESPACE,
            SINGLE_NAMESPACE,
            MULTI_NAMESPACE,
        ]
        .map(|kind| InstallMode {
            kind: kind.to_owned(),
            supported: supported.contains(&kind),
        })
        .to_vec()
    }

    #[test]
    fn target_namespaces_need_their_install_mode() {
        let own: &[&str] = &["own"];
        for (supported, targets, expected) in [
            (&["OwnNamespace"][..], own, true),
            (&["OwnNamespace"], &["a"], false),
            (&["SingleNamespace"], &["a"], true),
            (&["SingleNamespace"], own, false),
            (&["SingleNamespace", "OwnNamespace"], own, true),
            (&["SingleNamespace"], &["a", "b"], false),
            (&["MultiNamespace"], &["a", "b"], true),
            (&["MultiNamespace"], &["a"], false),
            (&["MultiNamespace"], &["a", "own"], false),
            (&["MultiNamespace", "OwnNamespace"], &["a", "own"], true),
            (&["AllNamespaces"], own, false),
            (&["AllNamespaces"], &["a", "b"], false),
            (&["AllNamespaces"], &[], false),
        ] {
            let all = modes(supported);
            let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
            let found = SupportedModes::new(&all).support(&targets, "own");
            assert_eq!(found, expected, "{supported:?} {targets:?}");
        }
    }

    #[test]
    fn modes_are_listed_like_in_messages_of_rukpak() {
        let all = modes(&["SingleNamespace", "AllNamespaces"]);
        let supported = SupportedModes::new(&all);
        assert_eq!(supported.listed(), "[AllNamespaces SingleNamespace]");
        assert!(!supported.is_all_namespaces_only() && !supported.is_empty());
        assert!(SupportedModes::new(&modes(&[])).is_empty());
        assert_eq!(supported.default(), Some(TargetNamespaces::All));
    }
}
