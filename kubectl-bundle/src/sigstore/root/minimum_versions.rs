//! Minimum versions of TUF metadata: the versions of the last complete refresh, and the versions of
//! valid metadata in rejected refreshes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sigstore_tuf::{Error, MetadataStore, TrustedMetadataSet};

use super::store::{MetadataUpdate, SNAPSHOT, TIMESTAMP};

/// Versions of metadata whose signatures are valid under the current root. 0 means that there is no
/// such metadata.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MinimumVersions {
    timestamp: u64,
    /// Version of the snapshot metadata that the timestamp metadata names.
    snapshot: u64,
    /// Versions of targets metadata that the snapshot metadata names, by file.
    targets: BTreeMap<String, u64>,
}

impl MinimumVersions {
    /// Returns the versions of all stored metadata.
    pub(super) fn of_stored(root: &[u8], draft: &MetadataUpdate) -> Self {
        let mut versions = Self::default();
        for (timestamp, snapshot) in draft.kept_versions() {
            versions.add(root, &timestamp, snapshot.as_deref());
        }
        versions
    }

    /// Returns the versions of this refresh. The refresh can be complete or incomplete.
    pub(super) fn after(root: &[u8], draft: &MetadataUpdate) -> Self {
        let mut versions = Self::default();
        if let Ok(Some(timestamp)) = draft.load(TIMESTAMP) {
            let snapshot = draft.load(SNAPSHOT).ok().flatten();
            versions.add(root, &timestamp, snapshot.as_deref());
        }
        versions
    }

    /// Adds the versions in timestamp metadata. Also adds the versions in snapshot metadata, if the
    /// timestamp metadata refers to it. Expired metadata is included.
    fn add(&mut self, root: &[u8], timestamp: &[u8], snapshot: Option<&[u8]>) {
        let Ok(mut trusted) = TrustedMetadataSet::from_root(root) else {
            return;
        };
        if trusted.update_timestamp(timestamp, Timestamp::MIN).is_err() {
            return;
        }
        if let Some(snapshot) = snapshot {
            // A snapshot to which the timestamp does not refer is ignored.
            let _ = trusted.update_snapshot(snapshot, Timestamp::MIN);
        }
        if let Some(timestamp) = trusted.timestamp() {
            self.timestamp = self.timestamp.max(timestamp.version);
            let pinned = timestamp.snapshot_meta().map_or(0, |meta| meta.version);
            self.snapshot = self.snapshot.max(pinned);
        }
        if let Some(snapshot) = trusted.snapshot() {
            for (name, meta) in &snapshot.meta {
                let version = self.targets.entry(name.clone()).or_default();
                *version = meta.version.max(*version);
            }
        }
    }

    /// Returns an error if the timestamp metadata in `newer` has a lower version, or names a lower
    /// version of the snapshot metadata.
    pub(super) fn check_timestamp(&self, newer: &Self) -> Result<(), Error> {
        check_rollback("timestamp", self.timestamp, newer.timestamp)?;
        check_rollback("snapshot (via timestamp)", self.snapshot, newer.snapshot)
    }

    /// Returns an error if the snapshot metadata in `newer` names a lower version of any targets
    /// metadata.
    pub(super) fn check_snapshot(&self, newer: &Self) -> Result<(), Error> {
        if newer.targets.is_empty() {
            return Ok(());
        }
        for (name, trusted) in &self.targets {
            let new = newer.targets.get(name).copied().unwrap_or_default();
            check_rollback(&format!("{name} (via snapshot)"), *trusted, new)?;
        }
        Ok(())
    }
}

fn check_rollback(role: &str, trusted: u64, new: u64) -> Result<(), Error> {
    if new >= trusted {
        return Ok(());
    }
    let role = role.to_owned();
    Err(Error::Rollback { role, trusted, new })
}
