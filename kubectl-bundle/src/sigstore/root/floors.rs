//! Versions below which nothing of a TUF repository may go: those of the last refresh that was complete, and of what held in refreshes that were refused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sigstore_tuf::{Error, MetadataStore, TrustedMetadataSet};

use super::store::{Draft, SNAPSHOT, TIMESTAMP};

/// Versions that were seen, with signatures that hold under the root as it is now. 0 is none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Floors {
    timestamp: u64,
    /// The snapshot's, as a timestamp has it.
    snapshot: u64,
    /// Those of the targets, as a snapshot has them.
    targets: BTreeMap<String, u64>,
}

impl Floors {
    /// Of all that is kept.
    pub(super) fn kept(root: &[u8], draft: &Draft) -> Self {
        let mut floors = Self::default();
        for (timestamp, snapshot) in draft.kept_versions() {
            floors.raise(root, &timestamp, snapshot.as_deref());
        }
        floors
    }

    /// Of what counts after this refresh, or counted as far as it went.
    pub(super) fn after(root: &[u8], draft: &Draft) -> Self {
        let mut floors = Self::default();
        if let Ok(Some(timestamp)) = draft.load(TIMESTAMP) {
            let snapshot = draft.load(SNAPSHOT).ok().flatten();
            floors.raise(root, &timestamp, snapshot.as_deref());
        }
        floors
    }

    /// With a timestamp, and a snapshot that counts only if that timestamp is about it. What has expired says all the same what there was.
    fn raise(&mut self, root: &[u8], timestamp: &[u8], snapshot: Option<&[u8]>) {
        let Ok(mut trusted) = TrustedMetadataSet::from_root(root) else {
            return;
        };
        if trusted.update_timestamp(timestamp, Timestamp::MIN).is_err() {
            return;
        }
        if let Some(snapshot) = snapshot {
            // One that is about something else tells nothing.
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

    /// Returns `true` if the timestamp of `newer` goes below.
    pub(super) fn check_timestamp(&self, newer: &Self) -> Result<(), Error> {
        back("timestamp", self.timestamp, newer.timestamp)?;
        back("snapshot (via timestamp)", self.snapshot, newer.snapshot)
    }

    /// Returns `true` if its snapshot does, if it has one.
    pub(super) fn check_snapshot(&self, newer: &Self) -> Result<(), Error> {
        if newer.targets.is_empty() {
            return Ok(());
        }
        for (name, trusted) in &self.targets {
            let new = newer.targets.get(name).copied().unwrap_or_default();
            back(&format!("{name} (via snapshot)"), *trusted, new)?;
        }
        Ok(())
    }
}

fn back(role: &str, trusted: u64, new: u64) -> Result<(), Error> {
    if new >= trusted {
        return Ok(());
    }
    let role = role.to_owned();
    Err(Error::Rollback { role, trusted, new })
}
