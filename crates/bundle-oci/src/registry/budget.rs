//! How many signatures, and how many bytes of them, are read beside one digest: whoever may write there could else fill our memory. And how
//! the places where they are share that. Not here: reading them (referrers, legacy).

use std::collections::BTreeMap;

use bundle_core::policy::{RawSignature, Unread};

use crate::limits::{REFERRERS, SIGNATURE_BYTES, SIGNATURES_BYTES};
use crate::manifest::Descriptor;

/// Most of those that are not read which are told: each takes room wherever the signatures are kept, and more of them say nothing more.
const TOLD: usize = 1_000;

/// What each signature counts at least when it is asked which place has had least: places share the number of signatures as well as the bytes.
const LEAST: u64 = SIGNATURES_BYTES / REFERRERS as u64;

/// What may still be read.
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

/// What there is in one place, in the order in which it is to be read.
#[derive(Debug, Default)]
pub(super) struct Place {
    slots: Vec<Slot>,
    /// How many more there are.
    beyond: usize,
}

impl Place {
    /// These layers, as many as they are.
    pub(super) fn of(layers: impl Iterator<Item = Descriptor>) -> Self {
        Self {
            slots: layers.map(Slot::Wanted).collect(),
            beyond: 0,
        }
    }
}

/// What is read of several places, in their order, and the budget that this leaves. Next is always the place that has had least: a flood in one of
/// them takes nothing from what the others need, up to an equal share, and what one does not need is left to the others.
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
    /// What its place has had with it.
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
        self.leave(unread(Unread::TooLarge { bytes, limit }))
    }

    /// What becomes of one that is left where it is; `None` if it is one of too many.
    fn leave(&mut self, signature: RawSignature) -> Option<Slot> {
        if self.signatures == 0 {
            self.beyond(1);
            return None;
        }
        self.signatures -= 1;
        Some(Slot::Left(signature))
    }

    /// What becomes of what was found in one place, where there are others.
    fn again(&mut self, slot: Slot) -> Option<Slot> {
        match slot {
            Slot::Wanted(layer) => self.take(layer),
            Slot::Left(signature) => self.leave(signature),
        }
    }

    /// A place where nothing but this was found.
    pub(super) fn place(self, slots: Vec<Slot>) -> Place {
        Place {
            slots,
            beyond: self.beyond,
        }
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
    fn what_one_place_does_not_need_is_left_to_the_others() {
        let (slots, budget) = share([layers(300, 1), layers(3, 2), Place::default()]);
        assert_eq!((read_of(&slots, 1), read_of(&slots, 2)), (253, 3));
        assert_eq!(budget.beyond, 47);
        // In the order of the places, whatever order they were taken in.
        assert!(matches!(&slots[252], Slot::Wanted(layer) if layer.size == 1));
    }

    #[test]
    fn each_place_has_a_third_of_the_number_and_of_the_bytes() {
        let (slots, _) = share([layers(10_000, 1), layers(10_000, 2), layers(10_000, 3)]);
        for size in 1..=3 {
            assert!(read_of(&slots, size) >= REFERRERS / 3, "{size}");
        }
        assert_eq!(slots.len(), REFERRERS);
        // As large as they may be, or larger than that, and as many.
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
