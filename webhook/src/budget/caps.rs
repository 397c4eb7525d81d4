//! The limits of requesters, impersonated users and client addresses in the pools of [`Budget`].

use std::net::IpAddr;

use super::{Budget, Cap, CapKind, Pool, address_key, requester_key};

impl Budget {
    /// Returns the limit of a requester: half of the pool.
    pub fn half(pool: &Pool, requester: &str) -> Vec<Cap> {
        Self::part(pool, requester, 2)
    }

    /// Returns the limit of a requester: the pool divided by `parts`.
    pub fn part(pool: &Pool, requester: &str, parts: u64) -> Vec<Cap> {
        vec![Cap::new(requester_key(requester), pool.capacity() / parts)]
    }

    /// Returns the limit of an impersonated user: half of the pool.
    pub fn half_of_user(pool: &Pool, user: &str) -> Vec<Cap> {
        vec![Cap::new(format!("user {user}"), pool.capacity() / 2)]
    }

    /// Returns the limit of a client address: three quarters of the pool, because one API server
    /// sends the reviews of all users. The pool is also divided between addresses
    /// ([`CapKind::Group`]), so that a few addresses cannot use all of it.
    pub fn by_address(pool: &Pool, client: IpAddr) -> Vec<Cap> {
        vec![address_cap(client, pool.capacity() / 4 * 3)]
    }

    /// Returns the limits of a large body: a quarter of the pool for its requester at one client
    /// address, and the limit of the address ([`Budget::by_address`]). If the requester is unknown,
    /// all bodies from the address with an unknown requester together have the limit of a
    /// requester.
    pub fn of_large_body(pool: &Pool, requester: Option<&str>, client: IpAddr) -> Vec<Cap> {
        let key = match requester {
            Some(requester) => origin_key(requester, Some(client)),
            None => format!("{} unknown requester", address_key(client)),
        };
        let mut caps = vec![Cap::new(key, pool.capacity() / 4)];
        caps.extend(Self::by_address(pool, client));
        caps
    }

    /// Returns the limits of a requester at one origin, and of the client address. The origin is
    /// the client address, or the reconciler if `client` is `None`. The limit at one origin is the
    /// pool divided by `parts`. The limit of the address is half of the pool. Therefore two
    /// addresses leave an eighth to others.
    pub fn part_at_origin(
        pool: &Pool,
        requester: &str,
        client: Option<IpAddr>,
        parts: u64,
    ) -> Vec<Cap> {
        let limit = pool.capacity() / parts;
        let mut caps = vec![Cap::new(origin_key(requester, client), limit)];
        caps.extend(client.map(|client| address_cap(client, pool.capacity() / 2)));
        caps
    }

    /// Returns the limits of a requester: half of the pool at one origin
    /// ([`Budget::part_at_origin`]), and three quarters of the pool at all origins.
    ///
    /// The client sends the name of the requester. Therefore the limit for all origins applies only
    /// to a requester that already has a share at the origin. Otherwise two clients that send the
    /// name of a requester could exclude the reviews of this requester from an API server.
    pub fn of_requester(pool: &Pool, requester: &str, client: Option<IpAddr>) -> Vec<Cap> {
        let at_origin = Cap::new(origin_key(requester, client), pool.capacity() / 2);
        let at_all_origins = Cap {
            key: requester_key(requester),
            limit: pool.capacity() / 4 * 3,
            kind: CapKind::Sum,
        };
        vec![at_origin, at_all_origins]
    }

    /// Returns the limits of a review: the limits of its requester, and the limit of the client
    /// address, if the address is known. Only the address limits a client that sends many names.
    /// The address has a reserve for small reviews ([`CapKind::GroupWithReserve`]), so that large
    /// reviews of a few requesters do not exclude the others.
    pub fn of_review(pool: &Pool, requester: &str, client: Option<IpAddr>) -> Vec<Cap> {
        let mut caps = Self::of_requester(pool, requester, client);
        let of_client = |client| Cap {
            kind: CapKind::GroupWithReserve,
            ..address_cap(client, pool.capacity() / 4 * 3)
        };
        caps.extend(client.map(of_client));
        caps
    }

    /// Returns the limits of further memory for a review that has reserved `own` bytes. If the
    /// requester has reserved no other memory in the pool at this origin, the limits of the
    /// requester do not apply, because a single share may also exceed these limits. If the client
    /// address has reserved no other memory, the limit of the address does not apply.
    pub fn of_running_review(
        pool: &Pool,
        requester: &str,
        client: Option<IpAddr>,
        own: u64,
    ) -> Vec<Cap> {
        let is_single = pool.held(&origin_key(requester, client)) <= own;
        let mut caps = Self::of_review(pool, requester, client);
        for cap in &mut caps {
            if (is_single && cap.kind == CapKind::Sum) || pool.held(&cap.key) <= own {
                cap.limit = pool.capacity();
            }
        }
        caps
    }

    /// Returns the limits of a verification of signatures in a review: half of the slots for a
    /// requester at one client address. An address has no limit, because one API server sends the
    /// reviews of all users. The addresses with waiting reviews are served in turn.
    pub fn of_verification(pool: &Pool, requester: &str, client: Option<IpAddr>) -> Vec<Cap> {
        let limit = pool.capacity() / 2;
        let mut caps = vec![Cap::new(origin_key(requester, client), limit)];
        caps.extend(client.map(|client| address_cap(client, pool.capacity())));
        caps
    }
}

/// Returns the limit of a client address.
pub(super) fn address_cap(client: IpAddr, limit: u64) -> Cap {
    Cap {
        key: address_key(client),
        limit,
        kind: CapKind::Group,
    }
}

/// Returns the key of a requester at one origin: a client address, or the reconciler. Other clients
/// can send the same name, so their reviews have other keys. The key begins with the origin,
/// because the name of a requester can be any text.
fn origin_key(requester: &str, client: Option<IpAddr>) -> String {
    let requester = requester_key(requester);
    match client {
        Some(client) => format!("{} {requester}", address_key(client)),
        None => format!("reconciles {requester}"),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn client_with_many_requesters_leaves_memory_to_other_addresses() {
        let budget = Budget::default();
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

    #[tokio::test]
    async fn large_bodies_of_a_requester_leave_memory_to_others_at_its_address() {
        let budget = Budget::default();
        let pool = &budget.bodies;
        let client = IpAddr::from([10, 0, 0, 1]);
        // The ServiceAccounts of a namespace are one requester, and the name of a requester can be
        // any text.
        let account = |name: &str| Some(format!("system:serviceaccount:team:{name}"));
        for names in [
            [Some("mallory".to_owned()), Some("mallory".to_owned())],
            [account("a"), account("b")],
            [None, None],
        ] {
            let caps = |name: Option<&str>| Budget::of_large_body(pool, name, client);
            let [first, second] = names.each_ref().map(Option::as_deref);
            let mut held = Vec::new();
            for name in [first, second, first] {
                held.extend(pool.try_take(MIB, caps(name)));
            }
            assert_eq!(held.len(), 2);
            // A body of another requester does not wait, although many bodies wait for longer.
            let wait = |name| Box::pin(pool.take(MIB, caps(name)));
            let mut waiting: Vec<_> = (0..100).map(|_| wait(second)).collect();
            for one in &mut waiting {
                assert!(one.as_mut().now_or_never().is_none());
            }
            let other = |name: &str| pool.try_take(MIB, caps(Some(name)));
            let others = ["ana", "ben", "eve", "unknown requester"].map(other);
            held.extend(others.into_iter().flatten());
            assert_eq!(held.len(), 6);
            // The address has reached its limit. The requester without memory is next.
            let mut next = wait(Some("cleo"));
            assert!(next.as_mut().now_or_never().is_none());
            drop(held.remove(0));
            assert!(next.now_or_never().is_some());
            drop((held, waiting));
            assert_eq!(pool.used(), 0);
        }
        // A single body can exceed the limit of its requester.
        let caps = Budget::of_large_body(pool, Some("ana"), client);
        assert!(pool.try_take(8 * MIB, caps).is_some());
    }

    #[test]
    fn large_reviews_of_an_address_leave_memory_to_small_reviews_of_others() {
        let budget = Budget::default();
        let pool = &budget.parsed_objects;
        let client = Some(IpAddr::from([10, 0, 0, 1]));
        let take = |weight: u64, requester: &str| {
            pool.try_take(weight, Budget::of_review(pool, requester, client))
        };
        let largest = take(budget.largest_review(), "mallory");
        // The largest review leaves an eighth of the memory of its address.
        let second = take(pool.capacity() / 4 * 3 - pool.used(), "eve");
        assert!(largest.is_some() && second.is_some());
        assert!(take(64 << 10, "eve").is_none() && take(2 * MIB, "ana").is_none());
        let small = take(MIB, "ana");
        assert!(small.is_some() && take(MIB, "ana").is_none());
        // Any number of requesters at the address use the reserve only once.
        let more: Vec<_> = (0..100)
            .map_while(|number| take(64 << 10, &format!("invented-{number}")))
            .collect();
        assert!(pool.used() <= pool.capacity() / 16 * 13);
        drop((largest, second, small, more));
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn two_addresses_with_many_requesters_leave_memory_to_a_third() {
        let budget = Budget::default();
        let pool = &budget.parsed_objects;
        let take = |weight: u64, requester: &str, host: u8| {
            let client = Some(IpAddr::from([10, 0, 0, host]));
            pool.try_take(weight, Budget::of_review(pool, requester, client))
        };
        let mut held = vec![take(budget.largest_review(), "forged", 1)];
        held.extend([take(pool.capacity() - pool.used(), "forged", 2)]);
        assert!(held[0].is_some() && held[1].is_none());
        let small = |host: u8| {
            let take = |number| take(256 << 10, &format!("forged-{number}"), host);
            (0..200).map_while(take).collect::<Vec<_>>()
        };
        let second = small(2);
        assert!(!second.is_empty());
        assert!(take(64 << 10, "ana", 3).is_some());
        drop((held, second));
        let (first, second) = (small(1), small(2));
        assert!(first.len() > second.len() && !second.is_empty());
        assert!(take(MIB, "ana", 3).is_some());
        drop((first, second));
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn clients_that_send_the_name_of_a_requester_do_not_exclude_the_requester() {
        let budget = Budget::default();
        let pool = &budget.parsed_objects;
        let client = |host: u8| Some(IpAddr::from([10, 0, 0, host]));
        let take = |host: u8| {
            let caps = Budget::of_review(pool, "ana", client(host));
            pool.try_take(MIB, caps)
        };
        let all = |host: u8| (0..64).map_while(|_| take(host)).collect::<Vec<_>>();
        let forged = all(1);
        assert!(pool.used() <= pool.capacity() / 2);
        let own = [take(3), take(3)];
        assert!(own.iter().all(Option::is_some));
        // A requester that uses several API servers leaves a quarter of the memory to others.
        let more = [all(3), all(4)];
        assert!(pool.used() <= pool.capacity() / 4 * 3 + MIB);
        drop((own, more));
        // Two clients send the name. One review at a time, with all its memory, is still possible.
        let other = all(2);
        assert!(pool.used() + MIB > pool.capacity() / 4 * 3);
        let review = take(3);
        assert!(review.is_some() && take(3).is_none());
        let caps = Budget::of_running_review(pool, "ana", client(3), MIB);
        assert!(pool.try_take(MIB, caps).is_some());
        drop((forged, other));
        assert!(take(3).is_some());
    }

    #[test]
    fn key_of_a_requester_at_an_origin_is_the_key_of_no_other_name() {
        let client = IpAddr::from([10, 0, 0, 1]);
        let key = origin_key("ana", Some(client));
        assert_eq!(key, "address 10.0.0.1 requester ana");
        assert_eq!(origin_key("ana", None), "reconciles requester ana");
        for name in ["ana", &key, "10.0.0.1 requester ana"] {
            assert_ne!(requester_key(name), key);
        }
        assert_ne!(address_key(client), key);
    }

    #[test]
    fn one_address_can_use_all_verification_slots() {
        let budget = Budget::default();
        let pool = &budget.verifications;
        let take = |requester: &str, host: u8| {
            let client = Some(IpAddr::from([10, 0, 0, host]));
            pool.try_take(1, Budget::of_verification(pool, requester, client))
        };
        let first = take("ana", 1);
        assert!(first.is_some() && take("ana", 1).is_none());
        // Another client has sent the same name.
        assert!(take("ana", 2).is_some());
        assert!(take("ben", 1).is_some());
    }

    #[test]
    fn single_large_review_can_reserve_further_memory() {
        let budget = Budget::default();
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
