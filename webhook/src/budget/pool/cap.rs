//! The limits of a share.

/// The maximum number of units for one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cap {
    /// A requester, a registry, or another name. The limit applies to the sum of all shares with
    /// this key.
    pub key: String,
    /// Maximum total weight of the shares. A single share may exceed this weight, because otherwise
    /// it would never be granted.
    pub limit: u64,
    /// The rules that apply in addition to the limit.
    pub kind: CapKind,
}

/// The rules of a [`Cap`] in addition to its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapKind {
    /// No further rule.
    Key,
    /// The key is for a group of first keys, such as the requesters of one client address. A
    /// share has at most one cap of this kind. Groups are served in turn, before the first keys of
    /// a group are served in turn. If the limit is lower than the capacity of the pool, the units
    /// are also divided between the groups ([`Pool::take`]).
    ///
    /// [`Pool::take`]: super::Pool::take
    Group,
    /// A [`Self::Group`] with a reserve: a sixteenth of the capacity in addition to the limit. Only
    /// a first key without a share can use the reserve, for a share of at most a sixteenth of the
    /// capacity. After the grant, at least a sixteenth of the capacity must be free. Therefore the
    /// large shares of a group do not exclude small shares of its other first keys.
    GroupWithReserve,
    /// The key is for the sum of several first keys, such as one requester at several client
    /// addresses. The limit applies only if the first key of the share has a share. Therefore
    /// shares with other first keys cannot exclude a first key.
    Sum,
}

impl CapKind {
    /// Returns true if the key is for a group of first keys.
    pub(super) fn is_group(self) -> bool {
        matches!(self, Self::Group | Self::GroupWithReserve)
    }
}

impl Cap {
    /// Creates a limit without further rules.
    pub fn new(key: String, limit: u64) -> Self {
        Self {
            key,
            limit,
            kind: CapKind::Key,
        }
    }
}
