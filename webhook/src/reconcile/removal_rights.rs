//! Asks whether requesters may delete objects, before an upgrade or a removal deletes them.
//! Which check a class asks for, and what becomes of the objects that stay, is in `bundle_core::plan::removal`.

use std::collections::BTreeSet;

use bundle_core::object::ObjectId;
use bundle_core::plan::removal::DeletionCheck;
use bundle_core::review::Requester;

use super::remove::{Kept, Present};
use super::room::Room;
use super::trouble::Trouble;
use super::{authorize, requester_check};

/// Returns those of `objects` that one of the requesters may not delete, once for each of them, with the reason.
pub(super) async fn undeletable(
    room: &Room,
    check: DeletionCheck,
    requesters: &[Requester],
    objects: &[Present],
    reason: &'static str,
) -> Result<Vec<Kept>, Trouble> {
    let mut kept: Vec<Kept> = Vec::new();
    if check == DeletionCheck::Delegated {
        return Ok(kept);
    }
    for requester in requesters {
        let refused = authorize::undeletable(&room.own, requester, objects).await?;
        kept.extend(refused.into_iter().map(|id| Kept {
            why: format!("{} may not delete it", requester.user),
            id,
        }));
    }
    if check == DeletionCheck::DryRun {
        let refused: BTreeSet<&ObjectId> = kept.iter().map(|kept| &kept.id).collect();
        let rest: Vec<&Present> = objects
            .iter()
            .filter(|present| !refused.contains(&present.id))
            .collect();
        let refused = requester_check::undeletable(room, requesters, &rest, reason).await?;
        kept.extend(refused);
    }
    Ok(kept)
}
