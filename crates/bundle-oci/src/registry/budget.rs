//! Budget for the number and total size of signatures that are read for one digest, and its fair
//! distribution over the places that store them. Anyone with write access to the repository could
//! otherwise exhaust memory.

use std::collections::BTreeMap;

use bundle_core::policy::{RawSignature, Unread};

use crate::limits::{REFERRERS, SIGNATURE_BYTES, SIGNATURES_BYTES};
use crate::manifest::Descriptor;

/// Maximum number of skipped signatures that are listed individually.
const TOLD: usize = 1_000;

/// Minimum cost of a signature, in bytes, so that places share the number of signatures as well as
/// their bytes.
const LEAST: u64 = SIGNATURES_BYTES / REFERRERS as u64;

/// Remaining number and bytes of signatures.
#[derive(Debug)]
pub(super) struct Budget {
    signatures: usize,
    bytes: u64,
    /// Number of skipped signatures beyond the limit.
    beyond: usize,
}

/// A signature to read, or the reason for which it is skipped.
#[derive(Debug)]
pub(super) enum Slot {
    /// To be read.
    Wanted(Descriptor),
    /// Skipped.
    Left(RawSignature),
}

/// The signatures that one place stores, in the order in which they are read.
#[derive(Debug, Default)]
pub(super) struct Place {
    slots: Vec<Slot>,
    /// Number of further signatures.
    beyond: usize,
}

impl Place {
    /// Returns a place with these layers.
    pub(super) fn of(layers: impl Iterator<Item = Descriptor>) -> Self {
        Self {
            slots: layers.map(Slot::Wanted).collect(),
            beyond: 0,
        }
    }
}

/// Returns the signatures to read from several places, in the order of the places, and the
/// remaining budget.
///
/// The next signature is always taken from the place that has used least. A flood in one place
/// cannot displace the others' signatures up to an equal share; unused shares are available to the
/// others.
pub(super) fn share<const PLACES: usize>(places: [Place; PLACES]) -> (Vec<Slot>, Budget) {
    let mut budget = Budget::new();
    let mut lines = places.map(|place| {
        budget.beyond(place.beyond);
        (0, place.slots.into_iter(), Vec::new())
    });
    loop {
        let waiting = lines.iter_mut().filter(|(_, line, _)| line.len() > 0);
        let Some((had, line, taken)) = waiting.min_by_key(|(had, ..)| *had) else {
            break;
        };
        for slot in line.by_ref().take(1) {
            *had += slot.cost();
            taken.extend(budget.again(slot));
        }
    }
    let taken = lines.into_iter().flat_map(|(.., taken)| taken).collect();
    (taken, budget)
}

impl Slot {
    /// Returns what it uses of its place's share, in bytes.
    fn cost(&self) -> u64 {
        match self {
            Self::Wanted(layer) => {
                let bytes = layer.size.min(SIGNATURE_BYTES) + layer.weight();
                bytes.max(LEAST)
            }
            Self::Left(_) => LEAST,
        }
    }
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            signatures: REFERRERS,
            bytes: SIGNATURES_BYTES,
            beyond: 0,
        }
    }

    /// Decides about a layer. Returns `None` for one beyond the limit.
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

    /// Decides about a manifest of signatures over the size limit. Returns `None` for one beyond
    /// the limit.
    pub(super) fn too_large(&mut self, bytes: u64, limit: u64) -> Option<Slot> {
        self.leave(unread(Unread::TooLarge { bytes, limit }))
    }

    /// Records a skipped signature. Returns `None` for one beyond the limit.
    fn leave(&mut self, signature: RawSignature) -> Option<Slot> {
        if self.signatures == 0 {
            self.beyond(1);
            return None;
        }
        self.signatures -= 1;
        Some(Slot::Left(signature))
    }

    /// Decides again about a signature, with the budget that several places share.
    fn again(&mut self, slot: Slot) -> Option<Slot> {
        match slot {
            Slot::Wanted(layer) => self.take(layer),
            Slot::Left(signature) => self.leave(signature),
        }
    }

    /// Returns a place that has only these signatures.
    pub(super) fn place(self, slots: Vec<Slot>) -> Place {
        Place {
            slots,
            beyond: self.beyond,
        }
    }

    /// Adds to the number of signatures beyond the limit.
    pub(super) fn beyond(&mut self, count: usize) {
        self.beyond = self.beyond.saturating_add(count);
    }

    /// Returns the signatures beyond the limit, as skipped ones.
    pub(super) fn rest(&self) -> impl Iterator<Item = RawSignature> + use<> {
        let limit = REFERRERS;
        std::iter::repeat_n(unread(Unread::Beyond { limit }), self.beyond.min(TOLD))
    }
}

/// Returns a skipped signature.
fn unread(why: Unread) -> RawSignature {
    RawSignature {
        bytes: Vec::new(),
        artifact_type: String::new(),
        annotations: BTreeMap::new(),
        unread: Some(why),
    }
}

#[cfg(test)]
mod tests {
    use bundle_core::reference::Digest;

    use super::*;

    fn layers(count: usize, size: u64) -> Place {
        let layer = Descriptor {
            media_type: String::new(),
            digest: Digest::of(b"x"),
            size,
            artifact_type: None,
            annotations: BTreeMap::new(),
            platform: None,
        };
        Place::of(std::iter::repeat_n(layer, count))
    }

    fn read_of(slots: &[Slot], size: u64) -> usize {
        let wanted = |slot: &&Slot| matches!(slot, Slot::Wanted(layer) if layer.size == size);
        slots.iter().filter(wanted).count()
    }

    #[test]
    fn unused_share_is_available_to_other_places() {
        let (slots, budget) = share([layers(300, 1), layers(3, 2), Place::default()]);
        assert_eq!((read_of(&slots, 1), read_of(&slots, 2)), (253, 3));
        assert_eq!(budget.beyond, 47);
        // The result is in the order of the places, not in the order of the shares.
        assert!(matches!(&slots[252], Slot::Wanted(layer) if layer.size == 1));
    }

    #[test]
    fn each_place_gets_a_third_of_the_number_and_of_the_bytes() {
        let (slots, _) = share([layers(10_000, 1), layers(10_000, 2), layers(10_000, 3)]);
        for size in 1..=3 {
            assert!(read_of(&slots, size) >= REFERRERS / 3, "{size}");
        }
        assert_eq!(slots.len(), REFERRERS);
        // Of the maximum size and over it, each in the maximum number.
        for size in [SIGNATURE_BYTES, u64::MAX] {
            for at in 0..3 {
                let mut places = [(); 3].map(|()| layers(10_000, size));
                places[at] = layers(70, 20 << 10);
                let (slots, _) = share(places);
                assert_eq!(read_of(&slots, 20 << 10), 70, "{size} {at}");
                assert!(slots.len() <= REFERRERS);
            }
        }
    }
}
