//! History of revisions, and the old Bundles that are deleted after an upgrade.

use bundle_api::deployment::status::{Revision, RevisionState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Returns the history after `bundle` is installed. `bundle` comes first and is the only active
/// revision; the newest `history` superseded revisions follow.
pub fn installed(
    revisions: &[Revision],
    bundle: &str,
    digest: &str,
    version: Option<&str>,
    history: usize,
    now: &Time,
) -> Vec<Revision> {
    let same = revisions.first().filter(|first| {
        first.bundle == bundle && first.digest == digest && first.state == RevisionState::Active
    });
    let active = Revision {
        bundle: bundle.to_owned(),
        digest: digest.to_owned(),
        version: version.map(str::to_owned),
        installed_at: same.map_or_else(|| Some(now.clone()), |first| first.installed_at.clone()),
        state: RevisionState::Active,
    };
    let older = revisions
        .iter()
        .filter(|revision| revision.bundle != bundle)
        .take(history)
        .map(|revision| Revision {
            state: RevisionState::Superseded,
            ..revision.clone()
        });
    std::iter::once(active).chain(older).collect()
}

/// Bundle that a BundleDeployment owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    /// Name of the Bundle.
    pub name: String,
    /// Uid of the Bundle.
    pub uid: Option<String>,
    /// Creation time in RFC 3339, so that text order is time order.
    pub created: String,
}

/// Bundles that a BundleDeployment retains.
#[derive(Debug, Clone, Copy)]
pub struct RetainedBundles<'a> {
    /// Name of the Bundle of the current template.
    pub wanted: &'a str,
    /// True if the content of the wanted Bundle is installed.
    pub wanted_is_installed: bool,
    /// Name of the active Bundle.
    pub active: Option<&'a str>,
    /// History of revisions.
    pub revisions: &'a [Revision],
}

impl RetainedBundles<'_> {
    /// Returns true if the Bundle of this name is wanted, active or part of the history.
    pub fn contains(&self, name: &str) -> bool {
        name == self.wanted
            || Some(name) == self.active
            || self
                .revisions
                .iter()
                .any(|revision| revision.bundle == name)
    }
}

/// Largest number of retained Bundles that were never installed.
pub const NEVER_INSTALLED_LIMIT: usize = 4;

/// Returns the owned Bundles to delete.
///
/// After the wanted Bundle is installed, all Bundles that are not retained are deleted. Before
/// that, only the oldest Bundles beyond [`NEVER_INSTALLED_LIMIT`] are deleted, so that a series of
/// invalid templates does not fill the cluster.
pub fn to_delete<'a>(owned: &'a [Owned], retained: &RetainedBundles<'_>) -> Vec<&'a Owned> {
    let mut rest: Vec<_> = owned
        .iter()
        .filter(|bundle| !retained.contains(&bundle.name))
        .collect();
    rest.sort_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)));
    let keep = if retained.wanted_is_installed {
        0
    } else {
        NEVER_INSTALLED_LIMIT
    };
    rest.truncate(rest.len().saturating_sub(keep));
    rest
}

#[cfg(test)]
mod tests {
    use RevisionState::{Active, Superseded};
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn names(revisions: &[Revision]) -> Vec<(&str, RevisionState)> {
        revisions
            .iter()
            .map(|revision| (revision.bundle.as_str(), revision.state))
            .collect()
    }

    fn owned(names: &[&str]) -> Vec<Owned> {
        names
            .iter()
            .enumerate()
            .map(|(index, name)| Owned {
                name: (*name).to_owned(),
                uid: None,
                created: format!("2026-01-01T00:00:{index:02}Z"),
            })
            .collect()
    }

    fn deleted<'a>(owned: &'a [Owned], retained: &RetainedBundles<'_>) -> Vec<&'a str> {
        let gone = to_delete(owned, retained).into_iter();
        gone.map(|bundle| bundle.name.as_str()).collect()
    }

    #[test]
    fn newest_revision_comes_first_and_history_is_bounded() {
        let mut revisions = Vec::new();
        for (index, bundle) in (0..).zip(["a", "b", "c", "d"]) {
            revisions = installed(&revisions, bundle, bundle, Some("1.0.0"), 2, &at(index));
        }
        assert_eq!(
            names(&revisions),
            [("d", Active), ("c", Superseded), ("b", Superseded)]
        );
        assert_eq!(revisions[0].installed_at, Some(at(3)));
    }

    #[test]
    fn reinstallation_keeps_the_history_and_rollback_moves_the_revision_to_the_top() {
        let once = installed(&[], "a", "1", None, 5, &at(0));
        assert_eq!(installed(&once, "a", "1", None, 5, &at(1)), once);
        let back = installed(
            &installed(&once, "b", "2", None, 5, &at(1)),
            "a",
            "1",
            None,
            5,
            &at(2),
        );
        assert_eq!(names(&back), [("a", Active), ("b", Superseded)]);
        assert_eq!(back[0].installed_at, Some(at(2)));
    }

    #[test]
    fn deletes_only_bundles_outside_of_history_wanted_and_active() {
        let revisions = installed(
            &installed(&[], "a", "1", None, 5, &at(0)),
            "b",
            "2",
            None,
            5,
            &at(1),
        );
        let owned = owned(&["a", "b", "broken", "c"]);
        let retained = |active, revisions, wanted_is_installed| RetainedBundles {
            wanted: "c",
            wanted_is_installed,
            active,
            revisions,
        };
        assert_eq!(
            deleted(&owned, &retained(Some("b"), &revisions, false)),
            [""; 0]
        );
        let revisions = installed(&revisions, "c", "3", None, 1, &at(2));
        assert_eq!(
            deleted(&owned, &retained(Some("c"), &revisions, true)),
            ["a", "broken"]
        );
    }

    #[test]
    fn bundles_of_a_series_of_invalid_templates_are_bounded() {
        let owned = owned(&["x1", "x2", "x3", "x4", "x5", "x6", "now"]);
        let retained = RetainedBundles {
            wanted: "now",
            wanted_is_installed: false,
            active: None,
            revisions: &[],
        };
        assert_eq!(deleted(&owned, &retained), ["x1", "x2"]);
    }
}
