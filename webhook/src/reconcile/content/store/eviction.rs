//! Selects the cached copies that are removed when a new copy needs space.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::{CachedCopy, CopyKind};

/// Divisor for the share of one requester. The share is the cache limit divided by this number. If
/// the cache is full, copies of a requester above this share are removed first.
const REQUESTER_SHARE_DIVISOR: u64 = 2;
/// Divisor for the share of rendered copies. If the rendered copies of a requester use more than
/// the cache limit divided by this number, an archive can replace them. Otherwise the rendered
/// copies of one requester could prevent downloads of other content.
const RENDERED_SHARE_DIVISOR: u64 = 4;

/// A copy that the store will write next.
pub(super) struct NewCopy<'a> {
    /// The number of bytes that the copy counts towards the limits.
    pub(super) bytes: u64,
    pub(super) kind: CopyKind,
    pub(super) owner: &'a str,
}

/// Groups of copies, in the order of their removal.
#[derive(Debug, Clone, Copy)]
enum Group {
    /// Copies of the requester that owns the new copy. They are removed only while the copies of
    /// this requester exceed the share of one requester.
    Own,
    /// Copies of all requesters.
    All,
    /// Rendered copies of all requesters. Copies of a requester are removed only for a new archive,
    /// and only while this requester exceeds the share of rendered copies.
    Rendered,
}

/// Returns the copies to remove, so that the remaining copies and the `new` copy have at most
/// `limit` bytes together. Returns `None` if the space cannot be freed. Within each group, the
/// copies are removed in the order of `copies`. The groups `Own` and `All` contain no copies whose
/// [`CopyKind`] is greater than the kind of the new copy. All copies without an owner in `owners`
/// count as copies of one requester.
pub(super) fn evictions<'c>(
    copies: &'c [CachedCopy],
    owners: &HashMap<PathBuf, String>,
    new: &NewCopy<'_>,
    limit: u64,
) -> Option<Vec<&'c CachedCopy>> {
    let owner = |copy: &CachedCopy| owners.get(&copy.path).map(String::as_str);
    let is_own = |copy: &CachedCopy| owner(copy) == Some(new.owner);
    let is_rendered = |copy: &&CachedCopy| copy.kind == CopyKind::Rendered;
    let mut total: u64 = copies.iter().map(CachedCopy::counted_bytes).sum();
    let own_copies = copies.iter().filter(|copy| is_own(copy));
    let mut own: u64 = own_copies.map(CachedCopy::counted_bytes).sum();
    let mut rendered = HashMap::<Option<&str>, u64>::new();
    for copy in copies.iter().filter(is_rendered) {
        *rendered.entry(owner(copy)).or_default() += copy.counted_bytes();
    }
    let (mut removed, mut evicted) = (HashSet::<&Path>::new(), Vec::new());
    for group in [Group::Own, Group::All, Group::Rendered] {
        for copy in copies {
            if total + new.bytes <= limit {
                return Some(evicted);
            }
            let of_owner = rendered.get(&owner(copy)).copied().unwrap_or_default();
            let is_due = match group {
                Group::Own => {
                    let exceeds_share = own + new.bytes > limit / REQUESTER_SHARE_DIVISOR;
                    copy.kind <= new.kind && is_own(copy) && exceeds_share
                }
                Group::All => copy.kind <= new.kind,
                Group::Rendered => {
                    let exceeds_share = of_owner > limit / RENDERED_SHARE_DIVISOR;
                    new.kind == CopyKind::Archive && is_rendered(&copy) && exceeds_share
                }
            };
            if !is_due || !removed.insert(&copy.path) {
                continue;
            }
            total -= copy.counted_bytes();
            if is_own(copy) {
                own -= copy.counted_bytes();
            }
            if is_rendered(&copy) {
                let left = of_owner.saturating_sub(copy.counted_bytes());
                rendered.insert(owner(copy), left);
            }
            evicted.push(copy);
        }
    }
    (total + new.bytes <= limit).then_some(evicted)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    const UNIT: u64 = 100_000;

    /// Returns copies with a size of one `UNIT` each, and their owners. An empty name means that
    /// the copy has no owner.
    fn cache(of: &[(CopyKind, &str)]) -> (Vec<CachedCopy>, HashMap<PathBuf, String>) {
        let mut owners = HashMap::new();
        let copies = of.iter().enumerate().map(|(index, (kind, owner))| {
            let path = PathBuf::from(index.to_string());
            if !owner.is_empty() {
                owners.insert(path.clone(), (*owner).to_owned());
            }
            CachedCopy {
                path,
                bytes: UNIT,
                used: SystemTime::UNIX_EPOCH,
                kind: *kind,
            }
        });
        (copies.collect(), owners)
    }

    /// Returns the indices of the copies that a new copy of ana replaces. The new copy has a size
    /// of one `UNIT`, and the limit of the cache is eight units.
    fn replaced(of: &[(CopyKind, &str)], kind: CopyKind) -> Option<Vec<String>> {
        let (copies, owners) = cache(of);
        let new = NewCopy {
            bytes: UNIT,
            kind,
            owner: "ana",
        };
        let evicted = evictions(&copies, &owners, &new, 8 * UNIT)?;
        let paths = evicted.iter().map(|copy| copy.path.display().to_string());
        Some(paths.collect())
    }

    /// Returns the eight copies of a full cache: `count` rendered copies of `owner`, and content
    /// copies of ben.
    fn full(count: usize, owner: &str) -> Vec<(CopyKind, &str)> {
        let rendered = std::iter::repeat_n((CopyKind::Rendered, owner), count);
        let content = std::iter::repeat_n((CopyKind::Content, "ben"), 8 - count);
        rendered.chain(content).collect()
    }

    #[test]
    fn archive_replaces_rendered_copies_of_a_requester_only_above_a_quarter_of_the_cache() {
        for owner in ["eve", "ana", ""] {
            for count in 0..=8 {
                let expected = (count > 2).then(|| vec!["0".to_owned()]);
                let found = replaced(&full(count, owner), CopyKind::Archive);
                assert_eq!(found, expected, "{count} of {owner:?}");
            }
        }
        // The rendered copies of each of the two requesters use exactly a quarter of the cache.
        let mut shared = full(4, "eve");
        shared[0].1 = "cleo";
        shared[1].1 = "cleo";
        assert_eq!(replaced(&shared, CopyKind::Archive), None);
    }

    #[test]
    fn copy_replaces_no_copy_of_a_later_kind() {
        let first = Some(vec!["0".to_owned()]);
        let content = full(0, "eve");
        assert_eq!(replaced(&content, CopyKind::Rendered), None);
        assert_eq!(replaced(&content, CopyKind::Content), first);
        assert_eq!(replaced(&full(1, "eve"), CopyKind::Rendered), first);
        let mut archive = content.clone();
        archive[0].0 = CopyKind::Archive;
        assert_eq!(replaced(&archive, CopyKind::Archive), first);
        // A cache that has space for one more unit keeps all copies.
        assert_eq!(replaced(&content[1..], CopyKind::Archive), Some(Vec::new()));
    }
}
