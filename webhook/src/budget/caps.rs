//! The limits of requesters, impersonated users and client addresses in the pools of [`Budget`].

use std::net::IpAddr;

use super::{Budget, Cap, Pool, address_key, requester_key};

impl Budget {
    /// Returns the limit of a requester: half of the pool.
    pub fn half(pool: &Pool, requester: &str) -> Vec<Cap> {
        Self::part(pool, requester, 2)
    }

    /// Returns the limit of a requester: the pool divided by `parts`.
    pub fn part(pool: &Pool, requester: &str, parts: u64) -> Vec<Cap> {
        vec![Cap {
            key: requester_key(requester),
            limit: pool.capacity() / parts,
        }]
    }

    /// Returns the limit of an impersonated user: half of the pool.
    pub fn half_of_user(pool: &Pool, user: &str) -> Vec<Cap> {
        vec![Cap {
            key: format!("user {user}"),
            limit: pool.capacity() / 2,
        }]
    }

    /// Returns the limit of a client address: three quarters of the pool, because one API server
    /// sends the reviews of all users.
    pub fn by_address(pool: &Pool, client: IpAddr) -> Vec<Cap> {
        vec![Cap {
            key: address_key(client),
            limit: pool.capacity() / 4 * 3,
        }]
    }

    /// Returns the limits of a review: half of the pool for its requester, and the limit of the
    /// client address, if the address is known. The client sends the name of the requester.
    /// Therefore only the address limits a client that sends many names.
    pub fn of_review(pool: &Pool, requester: &str, client: Option<IpAddr>) -> Vec<Cap> {
        let mut caps = Self::half(pool, requester);
        let of_client = |client| Self::by_address(pool, client);
        caps.extend(client.into_iter().flat_map(of_client));
        caps
    }

    /// Returns the limits of further memory for a review that has reserved `own` bytes. If these
    /// bytes are the only memory of a key, the limit of this key does not apply, because a single
    /// share may exceed it too.
    pub fn of_running_review(
        pool: &Pool,
        requester: &str,
        client: Option<IpAddr>,
        own: u64,
    ) -> Vec<Cap> {
        let mut caps = Self::of_review(pool, requester, client);
        for cap in &mut caps {
            if pool.held(&cap.key) <= own {
                cap.limit = pool.capacity();
            }
        }
        caps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::DEFAULT_LIMIT;

    const MIB: u64 = 1 << 20;

    #[test]
    fn client_with_many_requesters_leaves_memory_to_other_addresses() {
        let budget = Budget::new(DEFAULT_LIMIT);
        let pool = &budget.parsed_objects;
        let [client, server] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
        let take = |requester: &str, from: IpAddr| {
            pool.try_take(2 * MIB, Budget::of_review(pool, requester, Some(from)))
        };
        let held: Vec<_> = (0..20)
            .map(|number| take(&format!("forged-{number}"), client))
            .collect();
        assert!(held.iter().any(Option::is_none));
        assert!(pool.used() <= pool.capacity() / 4 * 3);
        assert!(take("ana", server).is_some());
        // Without other reviews of the address, one review can exceed its limit.
        drop(held);
        let caps = Budget::of_review(pool, "ana", Some(client));
        assert!(pool.try_take(budget.largest_review(), caps).is_some());
    }

    #[test]
    fn single_large_review_can_reserve_further_memory() {
        let budget = Budget::new(DEFAULT_LIMIT);
        let pool = &budget.parsed_objects;
        let client = Some(IpAddr::from([10, 0, 0, 1]));
        let own = budget.largest_review();
        let review = pool.try_take(own, Budget::of_review(pool, "ana", client));
        assert!(review.is_some());
        let further = |own| {
            let caps = Budget::of_running_review(pool, "ana", client, own);
            pool.try_take(MIB, caps)
        };
        let first = further(own);
        assert!(first.is_some());
        // Other memory of the requester counts.
        assert!(further(own).is_none());
    }
}
