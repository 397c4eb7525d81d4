//! How many signatures, and how many bytes of them, are read beside one digest: whoever may write there could else fill our memory.
//! Not here: reading them (referrers, legacy).

use std::collections::BTreeMap;

use bundle_core::policy::{RawSignature, Unread};

use crate::limits::{REFERRERS, SIGNATURE_BYTES, SIGNATURES_BYTES};
use crate::manifest::Descriptor;

/// Most of those that are not read which are told: each takes room wherever the signatures are kept, and more of them say nothing more.
const TOLD: usize = 1_000;

/// What may still be read of one place.
#[derive(Debug)]
pub(super) struct Budget {
    signatures: usize,
    bytes: u64,
    /// How many were left where they are, being too many.
    beyond: usize,
}

/// A signature that is to be read, or why it is not.
#[derive(Debug)]
pub(super) enum Slot {
    /// To be read.
    Wanted(Descriptor),
    /// Left where it is.
    Left(RawSignature),
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            signatures: REFERRERS,
            bytes: SIGNATURES_BYTES,
            beyond: 0,
        }
    }

    /// What becomes of a layer; `None` if it is one of too many.
    pub(super) fn take(&mut self, layer: Descriptor) -> Option<Slot> {
        if self.signatures == 0 {
            self.beyond(1);
            return None;
        }
        if layer.size > SIGNATURE_BYTES {
            return self.too_large(layer.size, SIGNATURE_BYTES);
        }
        self.signatures -= 1;
        match self.bytes.checked_sub(layer.size + layer.weight()) {
            Some(left) => {
                self.bytes = left;
                Some(Slot::Wanted(layer))
            }
            None => Some(Slot::Left(unread(Unread::Crowded {
                limit: SIGNATURES_BYTES,
            }))),
        }
    }

    /// What becomes of a manifest of signatures that is larger than those are that anybody writes; `None` if it is one of too many.
    pub(super) fn too_large(&mut self, bytes: u64, limit: u64) -> Option<Slot> {
        if self.signatures == 0 {
            self.beyond(1);
            return None;
        }
        self.signatures -= 1;
        Some(Slot::Left(unread(Unread::TooLarge { bytes, limit })))
    }

    /// Notes that so many more are there.
    pub(super) fn beyond(&mut self, count: usize) {
        self.beyond = self.beyond.saturating_add(count);
    }

    /// Those that are too many.
    pub(super) fn rest(&self) -> impl Iterator<Item = RawSignature> + use<> {
        let limit = REFERRERS;
        std::iter::repeat_n(unread(Unread::Beyond { limit }), self.beyond.min(TOLD))
    }
}

/// A signature that was left where it is.
fn unread(why: Unread) -> RawSignature {
    RawSignature {
        bytes: Vec::new(),
        artifact_type: String::new(),
        annotations: BTreeMap::new(),
        unread: Some(why),
    }
}
