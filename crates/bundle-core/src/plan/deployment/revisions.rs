//! History of revisions, and the old Bundles that are deleted after an upgrade.

use bundle_api::deployment::status::{Revision, RevisionState};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use crate::json;
use crate::reference::Digest;
use crate::review::written_digest;

/// Maximum size of the recorded configurations of one history as JSON, in bytes.
pub const MAX_CONFIG_BYTES: usize = 8 << 10;

/// Content that was installed.
#[derive(Debug, Clone, Copy)]
pub struct InstalledRevision<'a> {
    /// Name of the Bundle.
    pub bundle: &'a str,
    /// Digest of the content.
    pub digest: &'a str,
    /// Version of the package; `None` if unknown.
    pub version: Option<&'a str>,
    /// Requester of the content.
    pub requested_by: &'a str,
    /// `spec.config`; null if the installation had no configuration.
    pub config: &'a Value,
}

/// Returns the history after `new` is installed. The first revision is `new`, which is the only
/// active revision. At most `history` former revisions follow, newest first. The former revisions
/// have the state `Superseded`, except revisions with the state `Failed`.
pub fn installed(
    revisions: &[Revision],
    new: &InstalledRevision<'_>,
    history: usize,
    now: &Time,
) -> Vec<Revision> {
    let same = revisions.first().filter(|first| {
        first.bundle == new.bundle
            && first.digest == new.digest
            && first.state == RevisionState::Active
    });
    let numbers = numbers(revisions);
    let newest = numbers.iter().copied().max().unwrap_or_default();
    let active = Revision {
        bundle: new.bundle.to_owned(),
        digest: new.digest.to_owned(),
        version: new.version.map(str::to_owned),
        installed_at: same.map_or_else(|| Some(now.clone()), |first| first.installed_at.clone()),
        state: RevisionState::Active,
        number: Some(match same {
            Some(_) => numbers.first().copied().unwrap_or(newest),
            None => newest.saturating_add(1),
        }),
        requested_by: Some(new.requested_by.to_owned()),
        config_digest: Some(config_digest(new.config).to_string()),
        config: Some(new.config).filter(|config| !config.is_null()).cloned(),
    };
    let older = revisions
        .iter()
        .zip(numbers)
        .filter(|(revision, _)| revision.bundle != new.bundle)
        .take(history)
        .map(|(revision, number)| Revision {
            state: match revision.state {
                RevisionState::Failed => RevisionState::Failed,
                _ => RevisionState::Superseded,
            },
            number: Some(number),
            ..revision.clone()
        });
    let mut history: Vec<Revision> = std::iter::once(active).chain(older).collect();
    limit_configs(&mut history);
    history
}

/// Removes configurations so that the remaining configurations together do not exceed
/// [`MAX_CONFIG_BYTES`]. Newer configurations have priority.
fn limit_configs(history: &mut [Revision]) {
    let mut left = MAX_CONFIG_BYTES;
    for revision in history {
        let bytes = revision.config.as_ref().map_or(0, json::length);
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => revision.config = None,
        }
    }
}

/// Marks the revision of this Bundle as failed: its objects were not healthy by the deadline.
pub fn mark_failed(revisions: &mut [Revision], bundle: &str) {
    for revision in revisions.iter_mut().filter(|one| one.bundle == bundle) {
        revision.state = RevisionState::Failed;
    }
}

/// Returns true if one of the revisions has content with this digest. Such content was installed
/// before.
pub fn contains(revisions: &[Revision], digest: &str) -> bool {
    revisions.iter().any(|revision| revision.digest == digest)
}

/// Returns the number of each revision. If a revision has no recorded number, all revisions are
/// counted from the oldest, which gets the number 1. Earlier versions of this project recorded no
/// numbers.
pub fn numbers(revisions: &[Revision]) -> Vec<i64> {
    let recorded: Option<Vec<i64>> = revisions.iter().map(|revision| revision.number).collect();
    recorded.unwrap_or_else(|| {
        let mut counted: Vec<i64> = (1..).take(revisions.len()).collect();
        counted.reverse();
        counted
    })
}

/// Returns the digest of a configuration.
pub fn config_digest(config: &Value) -> Digest {
    written_digest(config)
}

/// Returns true if the revision was installed with `config`. Returns false for a revision that an
/// earlier version of this project recorded without the digest of its configuration.
pub fn has_config(revision: Option<&Revision>, config: &Value) -> bool {
    let recorded = revision.and_then(|revision| revision.config_digest.as_deref());
    recorded == Some(config_digest(config).as_str())
}

/// The configuration of a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedConfig<'a> {
    /// The revision had this configuration. The value is null if there was no configuration.
    Known(&'a Value),
    /// The configuration is not recorded, because it was too large.
    Omitted {
        /// Digest of the configuration.
        digest: &'a str,
    },
    /// An earlier version of this project recorded the revision without its configuration.
    Unknown,
}

/// Returns the configuration with which a revision was last installed.
pub fn recorded_config(revision: &Revision) -> RecordedConfig<'_> {
    match (&revision.config, &revision.config_digest) {
        (Some(config), _) => RecordedConfig::Known(config),
        (None, Some(digest)) if *digest == config_digest(&Value::Null).to_string() => {
            RecordedConfig::Known(&Value::Null)
        }
        (None, Some(digest)) => RecordedConfig::Omitted { digest },
        (None, None) => RecordedConfig::Unknown,
    }
}

/// Returns the configuration for a restore of the installed content. `installed` is the revision of
/// that content, and `present` is `spec.config`. The result is null if the content has no
/// configuration. Returns `None` if the configuration of that content is not recorded, and its
/// recorded digest does not match `present`.
pub fn restored_config<'a>(
    installed: Option<&'a Revision>,
    present: &'a Value,
) -> Option<&'a Value> {
    match recorded_config(installed?) {
        RecordedConfig::Known(config) => Some(config),
        RecordedConfig::Omitted { digest } if digest == config_digest(present).as_str() => {
            Some(present)
        }
        RecordedConfig::Omitted { .. } | RecordedConfig::Unknown => None,
    }
}

/// Returns `spec` with this configuration. Null removes the configuration.
pub fn spec_with_config(spec: &Value, config: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        if config.is_null() {
            fields.remove("config");
        } else {
            fields.insert("config".to_owned(), config.clone());
        }
    }
    spec
}

/// Bundle that a BundleDeployment owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedBundle {
    /// Name of the Bundle.
    pub name: String,
    /// Uid of the Bundle; `None` if the API server returned no uid.
    pub uid: Option<String>,
    /// Creation time in RFC 3339. Therefore the lexical order of two texts is the order of their
    /// times.
    pub created: String,
}

/// Bundles that a BundleDeployment retains.
#[derive(Debug, Clone, Copy)]
pub struct RetainedBundles<'a> {
    /// Name of the Bundle of the current template.
    pub wanted: &'a str,
    /// True if the content of the Bundle of the current template is installed.
    pub wanted_is_installed: bool,
    /// Name of the active Bundle; `None` if nothing is installed.
    pub active: Option<&'a str>,
    /// Name of the Bundle that an automatic rollback would install.
    pub healthy: Option<&'a str>,
    /// Revisions that were installed before, newest first.
    pub revisions: &'a [Revision],
}

impl RetainedBundles<'_> {
    /// Returns true if the Bundle of this name is wanted, active, healthy or part of the history.
    pub fn contains(&self, name: &str) -> bool {
        name == self.wanted
            || Some(name) == self.active
            || Some(name) == self.healthy
            || self
                .revisions
                .iter()
                .any(|revision| revision.bundle == name)
    }
}

/// Maximum number of Bundles outside of [`RetainedBundles`] that are kept until the Bundle of the
/// current template is installed.
pub const NEVER_INSTALLED_LIMIT: usize = 4;

/// Returns the owned Bundles to delete.
///
/// After the Bundle of the current template is installed, all Bundles outside of `retained` are
/// deleted. Until then, only the newest [`NEVER_INSTALLED_LIMIT`] of these Bundles are kept, so
/// that a series of invalid templates does not fill the cluster.
pub fn to_delete<'a>(
    owned: &'a [OwnedBundle],
    retained: &RetainedBundles<'_>,
) -> Vec<&'a OwnedBundle> {
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
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn install(
        revisions: &[Revision],
        bundle: &str,
        digest: &str,
        history: usize,
        second: i64,
    ) -> Vec<Revision> {
        with_config(revisions, (bundle, digest), &Value::Null, history, second)
    }

    fn with_config(
        revisions: &[Revision],
        (bundle, digest): (&str, &str),
        config: &Value,
        history: usize,
        second: i64,
    ) -> Vec<Revision> {
        let new = InstalledRevision {
            bundle,
            digest,
            version: Some("1.0.0"),
            requested_by: "ana",
            config,
        };
        installed(revisions, &new, history, &at(second))
    }

    fn names(revisions: &[Revision]) -> Vec<(&str, RevisionState)> {
        revisions
            .iter()
            .map(|revision| (revision.bundle.as_str(), revision.state))
            .collect()
    }

    fn owned(names: &[&str]) -> Vec<OwnedBundle> {
        names
            .iter()
            .enumerate()
            .map(|(index, name)| OwnedBundle {
                name: (*name).to_owned(),
                uid: None,
                created: format!("2026-01-01T00:00:{index:02}Z"),
            })
            .collect()
    }

    fn deleted<'a>(owned: &'a [OwnedBundle], retained: &RetainedBundles<'_>) -> Vec<&'a str> {
        let gone = to_delete(owned, retained).into_iter();
        gone.map(|bundle| bundle.name.as_str()).collect()
    }

    #[test]
    fn newest_revision_comes_first_and_history_is_bounded() {
        let mut revisions = Vec::new();
        for (index, bundle) in (0..).zip(["a", "b", "c", "d"]) {
            revisions = install(&revisions, bundle, bundle, 2, index);
        }
        assert_eq!(
            names(&revisions),
            [("d", Active), ("c", Superseded), ("b", Superseded)]
        );
        assert_eq!(revisions[0].installed_at, Some(at(3)));
    }

    #[test]
    fn reinstallation_keeps_the_history_and_rollback_moves_the_revision_to_the_top() {
        let once = install(&[], "a", "1", 5, 0);
        assert_eq!(install(&once, "a", "1", 5, 1), once);
        let back = install(&install(&once, "b", "2", 5, 1), "a", "1", 5, 2);
        assert_eq!(names(&back), [("a", Active), ("b", Superseded)]);
        assert_eq!(back[0].installed_at, Some(at(2)));
    }

    #[test]
    fn numbers_increase_also_for_earlier_content_and_after_the_history_is_full() {
        let mut revisions = Vec::new();
        for (second, bundle) in (0..).zip(["a", "b", "c", "a", "a"]) {
            revisions = install(&revisions, bundle, bundle, 1, second);
        }
        assert_eq!(numbers(&revisions), [4, 3]);
        assert_eq!(names(&revisions), [("a", Active), ("c", Superseded)]);
    }

    #[test]
    fn revisions_without_numbers_are_counted_from_the_oldest() {
        let mut revisions = install(&install(&[], "a", "1", 5, 0), "b", "2", 5, 1);
        for revision in &mut revisions {
            revision.number = None;
        }
        assert_eq!(numbers(&revisions), [2, 1]);
        assert_eq!(numbers(&install(&revisions, "c", "3", 5, 2)), [3, 2, 1]);
    }

    #[test]
    fn last_configuration_of_each_content_is_recorded() {
        let (one, two) = (json!({"text": "one"}), json!({"text": "two"}));
        let first = with_config(&[], ("a", "1"), &one, 5, 0);
        let changed = with_config(&first, ("a", "1"), &two, 5, 1);
        assert_eq!(changed[0].number, Some(1));
        let next = install(&changed, "b", "2", 5, 2);
        assert_eq!(
            recorded_config(&next[0]),
            RecordedConfig::Known(&Value::Null)
        );
        assert_eq!(recorded_config(&next[1]), RecordedConfig::Known(&two));
        assert!(has_config(next.first(), &Value::Null) && has_config(next.get(1), &two));
        assert!(!has_config(next.first(), &one) && !has_config(None, &Value::Null));
        let earlier = Revision::default();
        assert_eq!(recorded_config(&earlier), RecordedConfig::Unknown);
        assert!(!has_config(Some(&earlier), &Value::Null));
    }

    #[test]
    fn oldest_configurations_beyond_the_limit_are_not_recorded() {
        let config = |letter: &str| json!({"text": letter.repeat(MAX_CONFIG_BYTES / 2)});
        let (a, b) = (config("a"), config("b"));
        let first = with_config(&[], ("a", "1"), &a, 5, 0);
        let second = with_config(&first, ("b", "2"), &b, 5, 1);
        assert_eq!(second[0].config, Some(b));
        let digest = config_digest(&a).to_string();
        let omitted = RecordedConfig::Omitted { digest: &digest };
        assert_eq!(recorded_config(&second[1]), omitted);
    }

    #[test]
    fn installed_content_is_restored_only_with_its_recorded_configuration() {
        let (old, new, none) = (json!({"text": "old"}), json!({"text": "new"}), Value::Null);
        let large = json!({"text": "a".repeat(MAX_CONFIG_BYTES)});
        let of = |config: &Value| with_config(&[], ("a", "1"), config, 5, 0);
        let unknown = vec![Revision::default()];
        // Columns: history, `spec.config`, configuration that a restore uses.
        for (history, present, expected) in [
            (of(&old), &old, Some(&old)),
            (of(&old), &new, Some(&old)),
            (of(&old), &none, Some(&old)),
            (of(&none), &new, Some(&none)),
            (of(&large), &large, Some(&large)),
            (of(&large), &new, None),
            (unknown, &new, None),
            (Vec::new(), &new, None),
        ] {
            assert_eq!(restored_config(history.first(), present), expected);
        }
        let spec = json!({"template": 1, "config": new});
        assert_eq!(
            spec_with_config(&spec, &old),
            json!({"template": 1, "config": old})
        );
        assert_eq!(spec_with_config(&spec, &none), json!({"template": 1}));
    }

    #[test]
    fn deletes_only_bundles_outside_of_history_wanted_and_active() {
        let revisions = install(&install(&[], "a", "1", 5, 0), "b", "2", 5, 1);
        let owned = owned(&["a", "b", "broken", "c"]);
        let retained = |active, revisions, wanted_is_installed| RetainedBundles {
            wanted: "c",
            wanted_is_installed,
            active,
            healthy: None,
            revisions,
        };
        assert_eq!(
            deleted(&owned, &retained(Some("b"), &revisions, false)),
            [""; 0]
        );
        let revisions = install(&revisions, "c", "3", 1, 2);
        assert_eq!(
            deleted(&owned, &retained(Some("c"), &revisions, true)),
            ["a", "broken"]
        );
        let healthy = RetainedBundles {
            healthy: Some("a"),
            ..retained(Some("c"), &revisions, true)
        };
        assert_eq!(deleted(&owned, &healthy), ["broken"]);
    }

    #[test]
    fn failed_revision_stays_failed_until_it_is_installed_again() {
        use RevisionState::Failed;
        let mut revisions = install(&install(&[], "a", "1", 5, 0), "b", "2", 5, 1);
        mark_failed(&mut revisions, "b");
        let returned = install(&revisions, "a", "1", 5, 2);
        assert_eq!(names(&returned), [("a", Active), ("b", Failed)]);
        assert_eq!(numbers(&returned), [3, 2]);
        let again = install(&returned, "b", "2", 5, 3);
        assert_eq!(names(&again), [("b", Active), ("a", Superseded)]);
    }

    #[test]
    fn bundles_of_a_series_of_invalid_templates_are_bounded() {
        let owned = owned(&["x1", "x2", "x3", "x4", "x5", "x6", "now"]);
        let retained = RetainedBundles {
            wanted: "now",
            wanted_is_installed: false,
            active: None,
            healthy: None,
            revisions: &[],
        };
        assert_eq!(deleted(&owned, &retained), ["x1", "x2"]);
    }
}
