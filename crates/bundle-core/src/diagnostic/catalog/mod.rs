//! Catalogue of diagnostic codes, one file for each area. The meaning of a released code never
//! changes.

use std::fmt;

/// Category of a code. The category determines the exit status of the CLI and the response of the
/// webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The command failed (exit 1).
    Failed,
    /// Usage error (exit 2).
    Usage,
    /// A rule rejected the input (exit 3).
    Refused,
    /// The result is unknown because a dependency did not respond. A retry may succeed (exit 4).
    Unknown,
}

/// A diagnostic code of the catalogue. The same code appears in the CLI, admission messages,
/// conditions, Events, metrics and `docs/reference/diagnostics.md`.
#[derive(Clone, Copy)]
pub struct Code {
    /// Stable identifier of the code, `BUNDLE-AREA-NNN`.
    pub id: &'static str,
    /// Short title of the problem.
    pub title: &'static str,
    /// Reason and remedy, as one paragraph for the documentation.
    pub help: &'static str,
    /// Category of the code.
    pub outcome: Outcome,
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}

impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}
impl Eq for Code {}

impl std::hash::Hash for Code {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl serde::Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id)
    }
}

/// Declares the codes of one area and their list:
/// `area! { NAME = "BUNDLE-X-001", Refused, "title", "help"; }`.
macro_rules! area {
    ($($name:ident = $id:literal, $outcome:ident, $title:literal, $help:literal;)*) => {
        $(
            #[doc = concat!("`", $id, "`: ", $title)]
            pub const $name: crate::diagnostic::Code = crate::diagnostic::Code {
                id: $id,
                title: $title,
                help: $help,
                outcome: crate::diagnostic::Outcome::$outcome,
            };
        )*
        pub(super) const ALL: &[crate::diagnostic::Code] = &[$($name),*];
    };
}

/// Codes by area, such as `codes::format::NO_MANIFESTS`.
pub mod codes {
    pub mod check;
    pub mod cluster;
    pub mod doctor;
    pub mod format;
    pub mod images;
    pub mod install;
    pub mod reference;
    pub mod registry;
    pub mod review;
    pub mod trust;
    pub mod usage;

    pub(super) const AREAS: &[&[crate::diagnostic::Code]] = &[
        usage::ALL,
        reference::ALL,
        format::ALL,
        images::ALL,
        check::ALL,
        registry::ALL,
        trust::ALL,
        review::ALL,
        cluster::ALL,
        install::ALL,
        doctor::ALL,
    ];
}

/// Returns all codes by area, in the order of the documentation.
pub fn all_codes() -> impl Iterator<Item = &'static Code> {
    codes::AREAS.iter().flat_map(|area| area.iter())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_well_formed() {
        let mut seen = BTreeSet::new();
        for code in all_codes() {
            assert!(seen.insert(code.id), "{} is used twice", code.id);
            let parts: Vec<_> = code.id.split('-').collect();
            assert!(
                parts.len() == 3
                    && parts[0] == "BUNDLE"
                    && parts[2].len() == 3
                    && parts[2].bytes().all(|b| b.is_ascii_digit()),
                "{} does not read BUNDLE-AREA-NNN",
                code.id
            );
            assert!(
                !code.title.is_empty() && !code.help.is_empty(),
                "{} has no text",
                code.id
            );
        }
    }
}
