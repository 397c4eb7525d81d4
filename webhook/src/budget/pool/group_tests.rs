//! Tests of the division of a pool between groups, and of limits for sums of first keys.

use futures::FutureExt as _;

use super::*;

/// Returns caps for the first key `key` in a group. The group can have `most` units, and the first
/// key has no limit.
fn grouped(group: &str, key: &str, most: u64) -> Vec<Cap> {
    let group = Cap {
        key: group.to_owned(),
        limit: most,
        kind: CapKind::Group,
    };
    vec![Cap::new(format!("{key} of {}", group.key), u64::MAX), group]
}

fn assert_unused(pool: &Pool) {
    let state = lock(&pool.state);
    assert!(state.used == 0 && state.held.is_empty() && state.served.is_empty());
}

#[tokio::test]
async fn group_with_the_fewest_units_is_next_for_any_number_of_its_keys() {
    let pool = Pool::new(8);
    let take = |group: &str, key: &str| Box::pin(pool.take(4, grouped(group, key, 8)));
    let mut held = pool.take(8, grouped("sender", "a", 8)).await.unwrap();
    let mut invented = ["b", "c", "d"].map(|key| take("sender", key));
    let mut other = take("server", "a");
    for one in invented.iter_mut().chain([&mut other]) {
        assert!(one.as_mut().now_or_never().is_none());
    }
    held.reduce(4);
    let other = other.now_or_never();
    assert!(other.is_some());
    let [mut first, second, third] = invented;
    assert!(first.as_mut().now_or_never().is_none());
    drop(held);
    assert!(first.now_or_never().is_some());
    drop((other, second, third));
    assert_unused(&pool);
}

#[tokio::test]
async fn keys_of_a_group_are_served_in_turn() {
    let pool = Pool::new(4);
    let take = |key: &str| Box::pin(pool.take(2, grouped("server", key, 4)));
    let held = [take("a").await.unwrap(), take("a").await.unwrap()];
    let mut more = take("a");
    let mut modest = take("b");
    assert!(more.as_mut().now_or_never().is_none());
    assert!(modest.as_mut().now_or_never().is_none());
    let [first, last] = held;
    drop(first);
    assert!(more.as_mut().now_or_never().is_none());
    assert!(modest.now_or_never().is_some());
    drop((last, more));
    assert_unused(&pool);
}

#[tokio::test]
async fn few_groups_with_many_keys_leave_units_to_further_groups() {
    let pool = Pool::new(64);
    let mut held = Vec::new();
    for (group, most) in [("a", 48), ("b", 12), ("c", 3), ("d", 0)] {
        let shares: Vec<_> = (0..64)
            .map_while(|number| pool.try_take(1, grouped(group, &format!("{number}"), 48)))
            .collect();
        assert_eq!(shares.len(), most, "{group}");
        held.push(shares);
    }
    drop(held);
    assert_unused(&pool);
}

#[tokio::test]
async fn divided_pool_divides_between_groups_and_not_between_their_keys() {
    let pool = Pool::divided(16);
    let mut held = Vec::new();
    for (group, most) in [("a", 8), ("b", 4), ("c", 2), ("d", 1), ("e", 0)] {
        let caps = || grouped(group, "key", 12);
        let shares: Vec<_> = (0..16).map_while(|_| pool.try_take(1, caps())).collect();
        assert_eq!(shares.len(), most, "{group}");
        held.push(shares);
    }
    drop(held);
    assert_unused(&pool);
}

#[tokio::test]
async fn reserve_of_a_group_is_for_small_first_shares_of_its_keys() {
    let pool = Pool::new(64);
    let take = |weight: u64, key: &str| {
        let mut caps = grouped("server", key, 48);
        caps[1].kind = CapKind::GroupWithReserve;
        pool.try_take(weight, caps)
    };
    let large = [take(42, "large"), take(6, "large")];
    assert!(large.iter().all(Option::is_some));
    // The group has reached its limit.
    assert!(take(1, "large").is_none() && take(5, "a").is_none());
    let first = take(3, "a");
    assert!(first.is_some());
    assert!(take(1, "a").is_none());
    let last = take(1, "b");
    assert!(last.is_some());
    assert!(take(1, "c").is_none());
    // Another group leaves less than a sixteenth of the units free.
    drop((first, last));
    let other = pool.try_take(10, grouped("other", "a", 48));
    assert!(other.is_some());
    assert!(take(3, "a").is_none());
    drop((large, other));
    assert_unused(&pool);
}

#[tokio::test]
async fn first_share_of_a_group_leaves_a_part_of_the_free_units() {
    let pool = Pool::new(64);
    let take = |weight: u64, group: &str| pool.try_take(weight, grouped(group, "a", 48));
    let largest = take(56, "a");
    assert!(largest.is_some());
    assert!(take(8, "b").is_none());
    let second = take(6, "b");
    assert!(second.is_some());
    assert!(take(2, "c").is_none());
    let third = take(1, "c");
    assert!(third.is_some());
    // A group whose limit is the capacity can use the last unit.
    let last = pool.try_take(1, grouped("d", "a", 64));
    assert!(last.is_some());
    assert_eq!(pool.used(), 64);
    drop((largest, second, third, last));
    assert_unused(&pool);
}

#[tokio::test]
async fn first_share_that_waits_for_its_group_lets_small_shares_pass() {
    let pool = Pool::new(64);
    let caps = |group: &str| grouped(group, "a", 48);
    let held = pool.take(8, caps("a")).await.unwrap();
    let mut large = Box::pin(pool.take(56, caps("b")));
    assert!(large.as_mut().now_or_never().is_none());
    assert!(pool.take(4, caps("c")).now_or_never().is_some());
    drop(held);
    assert!(large.now_or_never().is_some());
}

#[tokio::test]
async fn limit_of_a_sum_excludes_no_first_key_without_a_share() {
    let pool = Pool::new(8);
    let caps = |first: &str| {
        let sum = Cap {
            key: "sum".to_owned(),
            limit: 6,
            kind: CapKind::Sum,
        };
        vec![Cap::new(first.to_owned(), 4), sum]
    };
    let take = |weight: u64, first: &str| pool.try_take(weight, caps(first));
    let held = [take(4, "a"), take(1, "b"), take(1, "b")];
    assert!(held.iter().all(Option::is_some));
    assert!(take(1, "b").is_none());
    let other = take(1, "c");
    assert!(other.is_some());
    assert!(take(1, "c").is_none());
    drop((held, other));
    assert_unused(&pool);
}
