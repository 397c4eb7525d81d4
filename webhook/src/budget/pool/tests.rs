//! Tests of the limits and the order of the shares of a pool.

use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{advance, sleep};

use super::blocking::BLOCKING_TIME;
use super::*;

fn by(key: &str, most: u64) -> Vec<Cap> {
    vec![Cap::new(key.to_owned(), most)]
}

#[tokio::test]
async fn dropped_shares_are_returned() {
    let pool = Pool::new(10);
    let first = pool.take(8, by("a", 10)).await.unwrap();
    let mut second = Box::pin(pool.take(8, by("b", 10)));
    assert!(second.as_mut().now_or_never().is_none());
    drop(first);
    assert_eq!(second.await.unwrap().weight(), 8);
    assert_eq!(pool.used(), 0);
}

#[tokio::test]
async fn reduced_share_returns_the_rest_once() {
    let pool = Pool::new(10);
    let mut first = pool.take(10, by("a", 4)).await.unwrap();
    let mut second = Box::pin(pool.take(4, by("b", 10)));
    assert!(second.as_mut().now_or_never().is_none());
    first.reduce(3);
    first.reduce(8);
    assert_eq!((first.weight(), second.await.unwrap().weight()), (3, 4));
    assert_eq!(pool.used(), 3);
    drop(first);
    assert_eq!(pool.used(), 0);
}

#[tokio::test]
async fn share_above_the_capacity_is_rejected() {
    let error = Pool::new(10).take(11, Vec::new()).await.unwrap_err();
    assert_eq!((error.wanted, error.capacity), (11, 10));
}

#[tokio::test]
async fn key_at_its_limit_waits_and_other_keys_overtake_it() {
    let pool = Pool::new(10);
    let one = pool.take(3, by("a", 4)).await.unwrap();
    assert!(pool.is_capped(3, &by("a", 4)) && !pool.is_capped(3, &by("b", 4)));
    let mut two = Box::pin(pool.take(3, by("a", 4)));
    assert!(two.as_mut().now_or_never().is_none());
    assert!(pool.take(3, by("b", 4)).now_or_never().is_some());
    drop(one);
    assert!(two.now_or_never().is_some());
    // A single share can exceed the limit of its key.
    assert!(pool.take(9, by("a", 4)).now_or_never().is_some());
}

#[tokio::test]
async fn divided_pool_leaves_units_to_further_keys() {
    let pool = Pool::divided(8);
    let mut held = Vec::new();
    for (key, most) in [("a", 4), ("b", 2), ("c", 1), ("d", 1), ("e", 0)] {
        let taken = (0..8).map_while(|_| pool.take(1, by(key, 8)).now_or_never());
        let taken: Vec<_> = taken.collect();
        assert_eq!(taken.len(), most, "{key}");
        held.push(taken);
    }
    assert_eq!(pool.used(), 8);
    // The waiter whose key has the fewest units is next.
    let mut more = Box::pin(pool.take(1, by("a", 8)));
    let mut first = Box::pin(pool.take(1, by("e", 8)));
    assert!(more.as_mut().now_or_never().is_none());
    assert!(first.as_mut().now_or_never().is_none());
    held[1].clear();
    let first = first.now_or_never();
    assert!(first.is_some());
    assert!(more.as_mut().now_or_never().is_none());
    held.clear();
    assert!(more.now_or_never().is_some());
    drop(first);
    assert_eq!(pool.used(), 0);
}

#[tokio::test]
async fn share_that_keeps_its_first_key_counts_only_for_this_key() {
    let caps = |first: &str| [by(first, 2), by("all", 1)].concat();
    let pool = Pool::new(3);
    let mut one = pool.take(1, caps("a")).await.unwrap();
    let mut two = Box::pin(pool.take(1, caps("a")));
    assert!(two.as_mut().now_or_never().is_none());
    one.keep_first_key();
    one.keep_first_key();
    let mut two = two.now_or_never().unwrap().unwrap();
    two.keep_first_key();
    assert_eq!((pool.used(), pool.held("a"), pool.held("all")), (2, 2, 0));
    assert!(pool.try_take(1, caps("a")).is_none());
    assert!(pool.try_take(1, caps("b")).is_some());
    drop((one, two));
    let state = lock(&pool.state);
    assert!(state.used == 0 && state.held.is_empty() && state.served.is_empty());
}

#[tokio::test]
async fn share_that_releases_its_first_key_counts_only_for_other_keys() {
    let pool = Pool::new(3);
    let take = || Box::pin(pool.take(1, [by("a", 1), by("all", 2)].concat()));
    let mut one = take().await.unwrap();
    let mut two = take();
    assert!(two.as_mut().now_or_never().is_none());
    one.release_first_key();
    let two = two.now_or_never().unwrap().unwrap();
    assert_eq!((pool.used(), pool.held("a"), pool.held("all")), (2, 1, 2));
    drop(two);
    assert_eq!((pool.used(), pool.held("a"), pool.held("all")), (1, 0, 1));
    drop(one);
    let state = lock(&pool.state);
    assert!(state.used == 0 && state.held.is_empty() && state.served.is_empty());
}

#[tokio::test]
async fn divided_pool_divides_only_between_first_keys() {
    let pool = Pool::divided(6);
    let caps = |first: &str| [by(first, 2), by("all", 4)].concat();
    let take = |first: &str| pool.try_take(1, caps(first));
    let held = ["a", "a", "a", "b", "b", "c"].map(take);
    let granted = held.each_ref().map(Option::is_some);
    // The key `all` has four units, although only two units are free: only first keys are limited
    // by the number of free units.
    assert_eq!(granted, [true, true, false, true, true, false]);
    assert_eq!((pool.used(), pool.held("all")), (4, 4));
}

#[tokio::test]
async fn key_with_the_smallest_share_is_served_first() {
    let pool = Pool::new(4);
    let held = [
        pool.take(2, by("a", 4)).await.unwrap(),
        pool.take(2, by("c", 4)).await.unwrap(),
    ];
    let mut greedy = Box::pin(pool.take(2, by("a", 4)));
    let mut modest = Box::pin(pool.take(2, by("b", 4)));
    assert!(greedy.as_mut().now_or_never().is_none());
    assert!(modest.as_mut().now_or_never().is_none());
    let [first, last] = held;
    drop(last);
    assert!(greedy.as_mut().now_or_never().is_none());
    assert!(modest.now_or_never().is_some());
    drop(first);
    assert!(greedy.now_or_never().is_some());
}

#[tokio::test]
async fn share_is_tried_without_waiting() {
    // The test takes more shares than the number of operations after which tokio interrupts a task.
    let pool = Pool::new(1_000);
    let shares: Vec<_> = (0..1_001)
        .map(|_| pool.try_take(1, by("a", 1_000)))
        .collect();
    let granted = shares.iter().filter(|share| share.is_some()).count();
    assert_eq!((granted, pool.used()), (1_000, 1_000));
    drop(shares);
    assert!(pool.try_take(1_001, by("a", 1_000)).is_none());
    assert!(pool.try_take(1_000, by("a", 1_000)).is_some());
    assert_eq!(pool.used(), 0);
}

#[tokio::test]
async fn dropped_wait_leaves_the_queue() {
    let pool = Pool::new(4);
    let held = pool.take(1, by("a", 4)).await.unwrap();
    let mut large = Box::pin(pool.take(4, by("b", 4)));
    assert!(large.as_mut().now_or_never().is_none());
    // This waiter is behind the large waiter in the queue, and is too large to pass it.
    let mut small = Box::pin(pool.take(2, by("c", 4)));
    assert!(small.as_mut().now_or_never().is_none());
    drop(large);
    assert!(small.now_or_never().is_some());
    drop(held);
    assert_eq!(pool.used(), 0);
}

#[tokio::test]
async fn large_waiter_does_not_delay_small_shares_of_other_keys() {
    let pool = Pool::new(16);
    let take = |weight: u64, key: &str| Box::pin(pool.take(weight, by(key, 16)));
    let held = take(8, "a").await.unwrap();
    let mut large = ["b", "c"].map(|key| take(12, key));
    for one in &mut large {
        assert!(one.as_mut().now_or_never().is_none());
    }
    // The shares that pass a waiter together have at most half of the units, including ended
    // shares.
    for key in ["d", "e", "d"] {
        assert!(take(2, key).now_or_never().is_some(), "{key}");
    }
    let small = take(2, "f").now_or_never();
    assert!(small.is_some());
    let mut late = take(1, "g");
    assert!(late.as_mut().now_or_never().is_none());
    assert_eq!(pool.used(), 10);
    drop(held);
    let [first, second] = large;
    let first = first.now_or_never();
    assert!(first.is_some());
    // The same shares have passed the second large waiter.
    assert!(late.as_mut().now_or_never().is_none());
    drop(second);
    assert!(late.now_or_never().is_some());
    drop((first, small));
    let state = lock(&pool.state);
    assert!(state.used == 0 && state.held.is_empty() && state.served.is_empty());
}

#[tokio::test(start_paused = true)]
async fn replaced_large_waiters_of_one_key_are_passed_as_often_as_one_waiter() {
    let pool = Pool::new(16);
    let take = |weight: u64, key: &str| Box::pin(pool.take(weight, by(key, 16)));
    let small = || take(2, "small").now_or_never().is_some();
    let mut held = take(8, "a").await.unwrap();
    let mut large = take(12, "b");
    assert!(large.as_mut().now_or_never().is_none());
    let mut passed = 0;
    for _ in 0..20 {
        // The key `b` always has a waiter: a new waiter begins before the wait of the old one ends.
        let mut next = take(12, "b");
        assert!(next.as_mut().now_or_never().is_none());
        large = next;
        passed += u64::from(small());
        advance(BLOCKING_TIME / 20).await;
    }
    assert_eq!(passed * 2, 8);
    // The blocking time of all waiters of the key `b` is counted together. It began with the fifth
    // small share.
    advance(BLOCKING_TIME / 5).await;
    assert!(small());
    // After the second period, small shares can pass again, up to half of the units in total.
    advance(BLOCKING_TIME).await;
    assert_eq!((0..20).filter(|_| small()).count(), 4);
    // After the key `b` got a share, small shares can pass its next waiter.
    held.reduce(4);
    drop(large.now_or_never().unwrap().unwrap());
    let other = take(6, "c").await.unwrap();
    let mut next = take(12, "b");
    assert!(next.as_mut().now_or_never().is_none());
    // A share above a quarter of the weight of the waiter cannot pass.
    assert!(take(4, "d").now_or_never().is_none());
    assert!(small());
    drop((next, other, held));
    let state = lock(&pool.state);
    assert!(state.used == 0 && state.held.is_empty() && state.served.is_empty());
    assert!(state.passed.is_empty());
}

#[tokio::test]
async fn large_waiter_is_served_although_small_keys_always_return() {
    let pool = Pool::new(8);
    let take = |key: usize| Box::pin(pool.take(2, by(&format!("small-{key}"), 8)));
    let mut held: VecDeque<_> = (0..4)
        .map(|key| take(key).now_or_never().unwrap().unwrap())
        .collect();
    let mut large = Box::pin(pool.take(8, by("large", 8)));
    assert!(large.as_mut().now_or_never().is_none());
    let (mut passed, mut turns, mut waiting) = (0, 0, Vec::new());
    // Whenever a small share ends, a small key waits for a new share.
    while let Some(share) = held.pop_front() {
        drop(share);
        let mut next = take(turns % 4);
        if let Some(share) = next.as_mut().now_or_never() {
            held.push_back(share.unwrap());
            passed += 1;
        } else {
            waiting.push(next);
        }
        turns += 1;
    }
    assert_eq!((passed, turns), (2, 6));
    let large = large.now_or_never().unwrap().unwrap();
    assert_eq!((large.weight(), pool.used()), (8, 8));
    drop(large);
    assert!(waiting.swap_remove(0).now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn blocked_waiters_get_free_units_after_the_blocking_time() {
    let pool = Pool::new(16);
    let take = |weight: u64, key: &str| Box::pin(pool.take(weight, by(key, 16)));
    let held = take(8, "a").await.unwrap();
    let mut large = take(12, "b");
    assert!(large.as_mut().now_or_never().is_none());
    for _ in 0..4 {
        assert!(take(2, "c").now_or_never().is_some());
    }
    let began = Instant::now();
    // The small waiter could pass, but the passing shares have reached their maximum sum. The other
    // waiter is too large to pass.
    let (small, similar) = tokio::join!(take(2, "c"), take(6, "d"));
    assert_eq!(began.elapsed().as_secs(), BLOCKING_TIME.as_secs());
    drop((small.unwrap(), similar.unwrap()));
    // Waiters of the same key do not pass in the second period.
    assert!(take(8, "e").now_or_never().is_some());
    assert!(take(2, "b").now_or_never().is_none());
    // After the second period, the large waiter blocks others again.
    advance(BLOCKING_TIME).await;
    let began = Instant::now();
    assert!(take(8, "e").await.is_ok());
    assert_eq!(began.elapsed().as_secs(), BLOCKING_TIME.as_secs());
    // In each period, the large waiter is the first in the order.
    drop(held);
    assert!(large.now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn large_waiter_gets_units_that_become_free_within_the_blocking_time() {
    let pool = &Pool::new(8);
    // Eight small keys wait for a new share whenever their share ends.
    let small = (0..8).map(|key| async move {
        while let Ok(share) = pool.take(2, by(&format!("small-{key}"), 8)).await {
            sleep(Duration::from_secs(3)).await;
            drop(share);
        }
    });
    let large = async {
        sleep(Duration::from_secs(1)).await;
        pool.take(8, by("large", 8)).await
    };
    tokio::select! {
        _ = futures::future::join_all(small) => panic!("the small keys always return"),
        share = tokio::time::timeout(Duration::from_secs(12), large) => {
            assert_eq!(share.unwrap().unwrap().weight(), 8);
        }
    }
}

#[tokio::test]
async fn waiter_is_passed_neither_by_similar_weights_nor_by_its_own_key() {
    let pool = Pool::new(16);
    let take = |weight: u64, key: &str| Box::pin(pool.take(weight, by(key, 16)));
    let mut held = take(10, "a").await.unwrap();
    let mut first = take(8, "b");
    let mut others = [take(6, "c"), take(3, "d"), take(1, "b")];
    assert!(first.as_mut().now_or_never().is_none());
    for other in &mut others {
        assert!(other.as_mut().now_or_never().is_none());
    }
    held.reduce(8);
    assert!(first.now_or_never().is_some());
    drop(held);
    for other in others {
        assert!(other.now_or_never().is_some());
    }
    assert_eq!(pool.used(), 0);
}

#[tokio::test]
async fn keys_are_served_in_turn_for_any_number_of_waiters() {
    let pool = Pool::new(2);
    let held = [
        pool.take(1, by("a", 1)).await.unwrap(),
        pool.take(1, by("b", 1)).await.unwrap(),
    ];
    let mut crowd: Vec<_> = ["a", "b", "a", "b"]
        .map(|key| Box::pin(pool.take(1, by(key, 1))))
        .into();
    for waiter in &mut crowd {
        assert!(waiter.as_mut().now_or_never().is_none());
    }
    let mut late = Box::pin(pool.take(1, by("c", 1)));
    assert!(late.as_mut().now_or_never().is_none());
    let [first, second] = held;
    // `a` was served before `c` started to wait, and `b` is the key that was served last.
    drop(first);
    let first = crowd[0].as_mut().now_or_never();
    assert!(first.is_some() && late.as_mut().now_or_never().is_none());
    drop(second);
    let share = late.now_or_never();
    assert!(share.is_some());
    drop((share, first));
    assert!(crowd[1].as_mut().now_or_never().is_some());
    drop(crowd);
    let state = lock(&pool.state);
    assert!(state.used == 0 && state.held.is_empty() && state.served.is_empty());
}

#[tokio::test]
async fn waiters_with_equal_limits_are_examined_once_and_served_in_turn() {
    let pool = Pool::new(2);
    let held = pool.take(1, by("a", 2)).await.unwrap();
    let mut crowd: Vec<_> = ["b", "b", "b", "c", "b"]
        .map(|key| (key, Box::pin(pool.take(2, by(key, 2)))))
        .into();
    for (_, waiter) in &mut crowd {
        assert!(waiter.as_mut().now_or_never().is_none());
    }
    assert_eq!(lock(&pool.state).candidates(), [0, 3, 4]);
    drop(held);
    let mut served = Vec::new();
    while let Some(index) = crowd
        .iter_mut()
        .position(|(_, waiter)| waiter.as_mut().now_or_never().is_some())
    {
        served.push(crowd.remove(index).0);
    }
    assert_eq!(served, ["b", "c", "b", "b", "b"]);
    assert_eq!(pool.used(), 0);
}

#[tokio::test]
async fn returning_keys_delay_a_waiting_key_once() {
    let pool = Pool::new(1);
    let take = |key: &str| Box::pin(pool.take(1, by(key, 1)));
    let held = take("victim").await.unwrap();
    let mut victim = take("victim");
    let mut x = take("x");
    assert!(victim.as_mut().now_or_never().is_none());
    assert!(x.as_mut().now_or_never().is_none());
    drop(held);
    let mut held = x.now_or_never().unwrap().unwrap();
    // Each of two keys starts to wait again whenever the other key has the unit.
    let mut turns = 0;
    for key in ["y", "x", "y", "x"] {
        let mut next = take(key);
        assert!(next.as_mut().now_or_never().is_none());
        drop(held);
        if victim.as_mut().now_or_never().is_some() {
            break;
        }
        held = next.now_or_never().unwrap().unwrap();
        turns += 1;
    }
    assert!(turns <= 1, "the key waited for {turns} further shares");
}
