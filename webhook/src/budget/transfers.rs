//! Slots for transfers, and for the unpacked contents that the transfers write to disk.
//!
//! Until an unpacked content is stored in the cache, `--cache-limit` does not count the space that
//! it uses on the volume. An unpacked content can wait for memory long after its transfer ended.
//! Therefore it keeps its slot until its file is stored or removed.

use super::{Cap, Pool, Share, ShareTooLarge, requester_key};

/// Number of slots in addition to the maximum number of concurrent transfers. Contents that wait
/// for memory use these slots, so that transfers of other requesters can continue.
const WAITING_CONTENTS: u64 = 2;
/// Maximum number of concurrent transfers of one requester from one registry. The maximum for all
/// requesters is one higher, so that one requester never uses all slots of a registry.
const PER_REQUESTER_AND_REGISTRY: u64 = 2;
/// Number of equal parts of the concurrent transfers. Each requester can use one part.
const REQUESTER_PARTS: u64 = 4;

/// The slots of one process for transfers.
///
/// A slot covers a transfer and the file that the transfer writes. Each task reserves in this
/// order:
///
/// 1. the folder of git (only for git sources)
/// 2. the slot
/// 3. memory for the responses of a registry, which is released before the next step
/// 4. memory for content, in the same pool
/// 5. the thread for content
///
/// A task that has memory for content or uses the thread for content never waits for a slot.
/// Therefore these waits cannot block each other forever.
#[derive(Debug)]
pub struct Transfers {
    /// One unit for each content that is transferred, or that is unpacked and not stored yet.
    contents: Pool,
    max_concurrent: u64,
}

/// A slot for the transfer of one content, and then for the unpacked file until the file is stored
/// or removed. The owner of the file must drop the slot after the file.
#[derive(Debug)]
pub struct TransferSlot(Share);

impl Transfers {
    /// Creates the slots for at most `max_concurrent` transfers at the same time.
    pub fn new(max_concurrent: u64) -> Self {
        Self {
            contents: Pool::divided(max_concurrent + WAITING_CONTENTS),
            max_concurrent,
        }
    }

    /// Returns the maximum number of concurrent transfers.
    pub fn max_concurrent(&self) -> u64 {
        self.max_concurrent
    }

    /// Waits for a slot for a transfer of `requester` from `registry`. The requester with the
    /// fewest slots is next. Dropping the future ends the wait.
    pub async fn take(
        &self,
        requester: &str,
        registry: &str,
    ) -> Result<TransferSlot, ShareTooLarge> {
        let share = self.contents.take(1, self.caps(requester, registry));
        Ok(TransferSlot(share.await?))
    }

    /// Returns the limits of a slot. The first limit applies until the content is stored or
    /// removed. It is the maximum number of transfers of the requester plus one, for a content that
    /// waits for memory during the next transfer.
    ///
    /// The other limits apply until the transfer ends:
    ///
    /// - a quarter of all transfers for one requester
    /// - this number, but at most two, for one requester and registry
    /// - one transfer more for one registry
    /// - the maximum number of all transfers
    fn caps(&self, requester: &str, registry: &str) -> Vec<Cap> {
        let transfers = (self.max_concurrent / REQUESTER_PARTS).max(1);
        let contents_key = requester_key(requester);
        let transfers_key = format!("transfers of {contents_key}");
        let at_registry = transfers.min(PER_REQUESTER_AND_REGISTRY);
        // The name of a registry contains no space. Therefore two different pairs of registry and
        // requester never have the same key.
        let registry_key = format!("registry {registry}");
        let at_registry_key = format!("{registry_key} {contents_key}");
        let limits = [
            (contents_key, transfers + 1),
            (transfers_key, transfers),
            (at_registry_key, at_registry),
            (registry_key, at_registry + 1),
            ("transfers".to_owned(), self.max_concurrent),
        ];
        limits.map(|(key, limit)| Cap::new(key, limit)).into()
    }
}

impl TransferSlot {
    /// Ends the transfer, so that another transfer can begin. From now on, the slot counts only for
    /// the unpacked content.
    pub fn end_transfer(&mut self) {
        self.0.keep_first_key();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const REGISTRY: &str = "registry.example.com";

    /// Returns a slot if a slot is free without a wait.
    fn begin(transfers: &Transfers, requester: &str, registry: &str) -> Option<TransferSlot> {
        transfers.take(requester, registry).now_or_never()?.ok()
    }

    /// Returns the slot of a content that waits for memory after its transfer.
    fn unpacked(transfers: &Transfers, requester: &str) -> Option<TransferSlot> {
        let mut slot = begin(transfers, requester, REGISTRY)?;
        slot.end_transfer();
        Some(slot)
    }

    #[tokio::test]
    async fn waiting_contents_of_three_requesters_leave_a_slot_to_a_fourth() {
        let transfers = Transfers::new(4);
        let mut held = Vec::new();
        for (requester, most) in [("ana", 2), ("ben", 2), ("eve", 1), ("mia", 1), ("joe", 0)] {
            let of_requester: Vec<_> = (0..8)
                .map_while(|_| unpacked(&transfers, requester))
                .collect();
            assert_eq!(of_requester.len(), most, "{requester}");
            held.push(of_requester);
        }
        assert_eq!(transfers.contents.used(), 4 + WAITING_CONTENTS);
        // The requester without a slot is next, although the other requester has waited longer.
        let mut more = Box::pin(transfers.take("eve", REGISTRY));
        let mut first = Box::pin(transfers.take("joe", REGISTRY));
        assert!(more.as_mut().now_or_never().is_none());
        assert!(first.as_mut().now_or_never().is_none());
        held[0].pop();
        assert!(more.as_mut().now_or_never().is_none());
        assert!(first.now_or_never().is_some());
        drop((more, held));
        assert_eq!(transfers.contents.used(), 0);
    }

    #[tokio::test]
    async fn transfers_are_limited_by_requester_by_registry_and_in_total() {
        let transfers = Transfers::new(4);
        let mut of_ana = begin(&transfers, "ana", "one.example.com").unwrap();
        assert!(begin(&transfers, "ana", "two.example.com").is_none());
        let _of_ben = begin(&transfers, "ben", "one.example.com").unwrap();
        assert!(begin(&transfers, "eve", "one.example.com").is_none());
        let _of_eve = begin(&transfers, "eve", "two.example.com").unwrap();
        let _of_mia = begin(&transfers, "mia", "two.example.com").unwrap();
        assert!(begin(&transfers, "joe", "three.example.com").is_none());
        of_ana.end_transfer();
        assert!(begin(&transfers, "joe", "one.example.com").is_some());
    }

    #[tokio::test]
    async fn one_requester_leaves_a_slot_of_each_registry_to_others() {
        // The number of slots, and the number that one requester can use at one registry.
        for (slots, most) in [(4, 1), (8, 2), (26, 2)] {
            let transfers = Transfers::new(slots);
            let of_ana: Vec<_> = (0..8)
                .map_while(|_| begin(&transfers, "ana", REGISTRY))
                .collect();
            assert_eq!(of_ana.len(), most, "{slots}");
            let of_ben: Vec<_> = (0..8)
                .map_while(|_| begin(&transfers, "ben", REGISTRY))
                .collect();
            assert_eq!(of_ben.len(), 1, "{slots}");
            assert!(begin(&transfers, "eve", REGISTRY).is_none());
            assert!(begin(&transfers, "eve", "other.example.com").is_some());
        }
    }

    #[tokio::test]
    async fn content_that_waits_for_memory_lets_one_more_transfer_of_its_requester_begin() {
        let transfers = Transfers::new(4);
        let mut first = begin(&transfers, "ana", REGISTRY).unwrap();
        let mut next = Box::pin(transfers.take("ana", REGISTRY));
        assert!(next.as_mut().now_or_never().is_none());
        first.end_transfer();
        let mut second = next.now_or_never().unwrap().unwrap();
        second.end_transfer();
        let mut third = Box::pin(transfers.take("ana", REGISTRY));
        assert!(third.as_mut().now_or_never().is_none());
        // The content of the first transfer is stored or removed.
        drop(first);
        assert!(third.now_or_never().is_some());
    }

    #[tokio::test]
    async fn waits_for_a_registry_that_hangs_hold_no_slots() {
        let transfers = Transfers::new(4);
        let hanging: Vec<_> = ["ana", "ben"]
            .map(|requester| begin(&transfers, requester, "hanging.example.com"))
            .into();
        assert!(hanging.iter().all(Option::is_some));
        let requesters: Vec<_> = (0..20).map(|number| format!("tenant-{number}")).collect();
        let mut waiting: Vec<_> = requesters
            .iter()
            .map(|requester| Box::pin(transfers.take(requester, "hanging.example.com")))
            .collect();
        for wait in &mut waiting {
            assert!(wait.as_mut().now_or_never().is_none());
        }
        assert_eq!(transfers.contents.used(), 2);
        let others = ["mia", "joe"].map(|requester| begin(&transfers, requester, REGISTRY));
        assert!(others.iter().all(Option::is_some));
        // Cancelled waits leave the queue.
        waiting.clear();
        drop((hanging, others));
        assert_eq!(transfers.contents.used(), 0);
    }
}
