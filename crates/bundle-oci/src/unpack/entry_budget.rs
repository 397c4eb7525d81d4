//! Remaining entries and paths of an image or archive while it is unpacked.

use super::UnpackError;
use crate::limits::{Limits, format_size};

/// Remaining number of entries, and remaining length of all paths in bytes.
#[derive(Debug)]
pub(super) struct EntryBudget {
    entries: usize,
    names: usize,
    limits: Limits,
}

impl EntryBudget {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            entries: limits.entries,
            names: limits.names,
            limits,
        }
    }

    /// Subtracts one entry.
    pub(super) fn charge_entry(&mut self) -> Result<(), UnpackError> {
        self.entries = self
            .entries
            .checked_sub(1)
            .ok_or_else(|| UnpackError::TooLarge {
                what: "the number of entries".to_owned(),
                limit: self.limits.entries.to_string(),
            })?;
        Ok(())
    }

    /// Subtracts the length of a path or of the target of a link, which stays in memory.
    pub(super) fn charge_name(&mut self, name: &str) -> Result<(), UnpackError> {
        self.names = self
            .names
            .checked_sub(name.len())
            .ok_or_else(|| UnpackError::TooLarge {
                what: "the length of all paths".to_owned(),
                limit: format_size(self.limits.names as u64),
            })?;
        Ok(())
    }
}
