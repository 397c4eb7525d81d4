//! Budget for the number and total size of signatures that are read for one digest. The budget is
//! divided fairly between the locations that store the signatures. Without a budget, users with
//! write access to the repository could exhaust memory.

use std::collections::BTreeMap;

use bundle_core::policy::{NotReadReason, RawSignature};

use crate::limits::{REFERRERS, SIGNATURE_BYTES, SIGNATURES_BYTES};
use crate::manifest::Descriptor;

/// Maximum number of skipped signatures that are listed individually.
const MAX_LISTED: usize = 1_000;

/// Minimum cost of a signature, in bytes. Because of this minimum, the budget of bytes also divides
/// the maximum number of signatures between the locations.
const MIN_COST: u64 = SIGNATURES_BYTES / REFERRERS as u64;

/// Number of signatures and number of bytes that can still be read.
#[derive(Debug)]
pub(in crate::registry) struct SignatureBudget {
    signatures: usize,
    bytes: u64,
    /// Number of signatures above the maximum number. They are only counted, and not read.
    only_counted: usize,
}

/// A signature to read, or the reason why the signature is skipped.
#[derive(Debug)]
pub(in crate::registry) enum SignatureSlot {
    /// A signature to read.
    ToRead(Descriptor),
    /// A skipped signature, with the reason.
    Skipped(RawSignature),
}

/// Signatures of one location, in the order in which they are read.
#[derive(Debug, Default)]
pub(in crate::registry) struct SignatureLocation {
    slots: Vec<SignatureSlot>,
    /// Number of further signatures of the location. They are only counted, and not read.
    beyond: usize,
}

impl SignatureLocation {
    /// Returns a location whose signatures are these layers.
    pub(in crate::registry) fn of(layers: impl Iterator<Item = Descriptor>) -> Self {
        Self {
            slots: layers.map(SignatureSlot::ToRead).collect(),
            beyond: 0,
        }
    }
}

/// Returns the signatures to read from several locations, in the order of the locations, and the
/// remaining budget. The next signature always comes from the location with the lowest cost so far.
/// Therefore many signatures in one location cannot displace signatures of other locations. Budget
/// that one location does not need is available to all locations.
pub(in crate::registry) fn share<const PLACES: usize>(
    places: [SignatureLocation; PLACES],
) -> (Vec<SignatureSlot>, SignatureBudget) {
    let mut budget = SignatureBudget::new();
    let mut lines = places.map(|place| {
        budget.add_beyond(place.beyond);
        (0, place.slots.into_iter(), Vec::new())
    });
    loop {
        let waiting = lines.iter_mut().filter(|(_, line, _)| line.len() > 0);
        let Some((had, line, taken)) = waiting.min_by_key(|(had, ..)| *had) else {
            break;
        };
        for slot in line.by_ref().take(1) {
            *had += slot.cost();
            taken.extend(budget.decide_again(slot));
        }
    }
    let taken = lines.into_iter().flat_map(|(.., taken)| taken).collect();
    (taken, budget)
}

impl SignatureSlot {
    /// Returns the number of bytes with which the signature counts for its location in [`share`].
    fn cost(&self) -> u64 {
        match self {
            Self::ToRead(layer) => {
                let bytes = layer.size.min(SIGNATURE_BYTES) + layer.memory_size();
                bytes.max(MIN_COST)
            }
            Self::Skipped(_) => MIN_COST,
        }
    }
}

impl SignatureBudget {
    pub(in crate::registry) fn new() -> Self {
        Self {
            signatures: REFERRERS,
            bytes: SIGNATURES_BYTES,
            only_counted: 0,
        }
    }

    /// Decides if a signature layer is read or skipped. Returns `None` for a layer that is only
    /// counted.
    pub(in crate::registry) fn decide(&mut self, layer: Descriptor) -> Option<SignatureSlot> {
        if self.signatures == 0 {
            self.add_beyond(1);
            return None;
        }
        if layer.size > SIGNATURE_BYTES {
            return self.too_large(layer.size, SIGNATURE_BYTES);
        }
        self.signatures -= 1;
        match self.bytes.checked_sub(layer.size + layer.memory_size()) {
            Some(left) => {
                self.bytes = left;
                Some(SignatureSlot::ToRead(layer))
            }
            None => Some(SignatureSlot::Skipped(skipped(
                NotReadReason::TotalSizeLimit {
                    limit: SIGNATURES_BYTES,
                },
            ))),
        }
    }

    /// Skips a manifest or layer of signatures that exceeds the size limit. Returns `None` if the
    /// skipped signature is only counted.
    pub(in crate::registry) fn too_large(
        &mut self,
        bytes: u64,
        limit: u64,
    ) -> Option<SignatureSlot> {
        self.skip(skipped(NotReadReason::TooLarge { bytes, limit }))
    }

    /// Records a skipped signature. Returns `None` if the signature is only counted.
    fn skip(&mut self, signature: RawSignature) -> Option<SignatureSlot> {
        if self.signatures == 0 {
            self.add_beyond(1);
            return None;
        }
        self.signatures -= 1;
        Some(SignatureSlot::Skipped(signature))
    }

    /// Repeats the decision for a slot of one location, with the budget that all locations share.
    fn decide_again(&mut self, slot: SignatureSlot) -> Option<SignatureSlot> {
        match slot {
            SignatureSlot::ToRead(layer) => self.decide(layer),
            SignatureSlot::Skipped(signature) => self.skip(signature),
        }
    }

    /// Returns a location that has only these signatures.
    pub(in crate::registry) fn into_location(self, slots: Vec<SignatureSlot>) -> SignatureLocation {
        SignatureLocation {
            slots,
            beyond: self.only_counted,
        }
    }

    /// Adds to the number of signatures that are only counted.
    pub(in crate::registry) fn add_beyond(&mut self, count: usize) {
        self.only_counted = self.only_counted.saturating_add(count);
    }

    /// Returns one skipped signature for each signature that was only counted, but at most
    /// [`MAX_LISTED`].
    pub(in crate::registry) fn skipped_signatures(
        &self,
    ) -> impl Iterator<Item = RawSignature> + use<> {
        let limit = REFERRERS;
        std::iter::repeat_n(
            skipped(NotReadReason::CountLimit { limit }),
            self.only_counted.min(MAX_LISTED),
        )
    }
}

/// Returns a skipped signature.
fn skipped(why: NotReadReason) -> RawSignature {
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

    fn layers(count: usize, size: u64) -> SignatureLocation {
        let layer = Descriptor {
            media_type: String::new(),
            digest: Digest::of(b"x"),
            size,
            artifact_type: None,
            annotations: BTreeMap::new(),
            platform: None,
        };
        SignatureLocation::of(std::iter::repeat_n(layer, count))
    }

    fn read_of(slots: &[SignatureSlot], size: u64) -> usize {
        let wanted = |slot: &&SignatureSlot| matches!(slot, SignatureSlot::ToRead(layer) if layer.size == size);
        slots.iter().filter(wanted).count()
    }

    #[test]
    fn unused_share_is_available_to_other_places() {
        let (slots, budget) = share([layers(300, 1), layers(3, 2), SignatureLocation::default()]);
        assert_eq!((read_of(&slots, 1), read_of(&slots, 2)), (253, 3));
        assert_eq!(budget.only_counted, 47);
        // The result is in the order of the locations, not in the order in which signatures were
        // selected.
        assert!(matches!(&slots[252], SignatureSlot::ToRead(layer) if layer.size == 1));
    }

    #[test]
    fn each_place_gets_a_third_of_the_number_and_of_the_bytes() {
        let (slots, _) = share([layers(10_000, 1), layers(10_000, 2), layers(10_000, 3)]);
        for size in 1..=3 {
            assert!(read_of(&slots, size) >= REFERRERS / 3, "{size}");
        }
        assert_eq!(slots.len(), REFERRERS);
        // The other locations have the maximum number of signatures. These signatures have the
        // maximum size in the first run, and are too large in the second run.
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
