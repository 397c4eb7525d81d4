//! What the process shares out: its memory, the transfers from registries, and the processor for long work. Work takes its share before it allocates.
//! Not here: how a share is taken (pool), how much memory there is (limit).

pub mod limit;
pub mod looks;
pub mod pool;
pub mod requests;

use std::time::Duration;

use tokio::sync::Semaphore;

pub use pool::{Cap, NeverFits, Pool, Share};

const MIB: u64 = 1 << 20;

/// What the process needs beside all shares, in bytes: code and runtime, connections, watches, caches, and requests to the API server (`requests`). Idle it has
/// 14 MiB, and after the installation of 3,000 objects 25 MiB.
const RESERVE: u64 = 32 * MIB;
/// The least that is left to share out, in bytes. Below, no review of the largest object fits.
const LEAST: u64 = 64 * MIB;
/// The most that is shared out, in bytes: more than this is no help to anybody.
const MOST: u64 = 1024 * MIB;
/// Large bodies of reviews as they arrive, in bytes: one of the largest size, and another one beside it.
const BODIES: u64 = 9 * MIB;
/// Small bodies of reviews, in bytes: large ones do not keep them waiting.
const SMALL_BODIES: u64 = MIB;
/// Bodies of up to so many bytes are small.
pub const SMALL_BODY: usize = 64 << 10;
/// What one transfer may hold, in bytes: pieces that wait for the unpacker, its buffers, and the list of files (`bundle_oci::limits::NAMES`).
pub const TRANSFER: u64 = 3 * MIB;
/// Transfers from one registry at a time.
const PER_REGISTRY: u64 = 2;
/// Threads for long work at a time: one, so that reviews and the reconciler have the other of the two cores that a pod usually has.
const HEAVY: usize = 1;

/// The smallest limit that the process starts with, in bytes.
pub const SMALLEST_LIMIT: u64 = RESERVE + LEAST;
/// The limit that is assumed where none is set, in bytes: that of the shipped Deployment.
pub const DEFAULT_LIMIT: u64 = 128 * MIB;

/// The shares of one process.
#[derive(Debug)]
pub struct Budget {
    /// Large bodies of reviews, in bytes, from their first byte until they are parsed. Taken before [`Budget::trees`], never after.
    pub bodies: Pool,
    /// The same for small bodies.
    pub small_bodies: Pool,
    /// Those of the small bodies that wait for other reviews of their requester, in bytes, by requester.
    pub waiting_bodies: Pool,
    /// The parsed objects of reviews, and what registries answer about their images (`looks`), in bytes, by requester.
    pub trees: Pool,
    /// The parsed content of bundles and the files that it is read from, in bytes, by requester.
    pub content: Pool,
    /// Transfers from registries, by requester and by registry.
    pub transfers: Pool,
    heavy: Semaphore,
}

impl Budget {
    /// Divides `limit`, in bytes, into shares.
    pub fn new(limit: u64) -> Self {
        let shared = limit.saturating_sub(RESERVE).clamp(LEAST, MOST) - BODIES - SMALL_BODIES;
        let transfers = shared / 6 / TRANSFER;
        let trees = shared * 3 / 8;
        Self {
            bodies: Pool::new(BODIES),
            small_bodies: Pool::new(SMALL_BODIES),
            waiting_bodies: Pool::new(SMALL_BODIES),
            trees: Pool::new(trees),
            content: Pool::new(shared - trees - transfers * TRANSFER),
            transfers: Pool::new(transfers),
            heavy: Semaphore::new(HEAVY),
        }
    }

    /// The caps of a requester in a pool: half of it.
    pub fn half(pool: &Pool, requester: &str) -> Vec<Cap> {
        Self::part(pool, requester, 2)
    }

    /// The caps of a requester in a pool: one of so many equal parts.
    pub fn part(pool: &Pool, requester: &str, parts: u64) -> Vec<Cap> {
        vec![Cap {
            key: format!("requester {requester}"),
            most: pool.capacity() / parts,
        }]
    }

    /// The caps of a transfer: a quarter of all for one requester, and two for one registry.
    pub fn transfer_caps(&self, requester: &str, registry: &str) -> Vec<Cap> {
        vec![
            Cap {
                key: format!("requester {requester}"),
                most: (self.transfers.capacity() / 4).max(1),
            },
            Cap {
                key: format!("registry {registry}"),
                most: PER_REGISTRY,
            },
        ]
    }

    /// Runs `work` on a thread that may be busy, when it is its turn. `None`: the thread ended early.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let _turn = self.heavy.acquire().await.ok()?;
        tokio::task::spawn_blocking(work).await.ok()
    }
}

/// Waits for a share, but not for longer than `patience`; `None` then.
pub async fn within(
    patience: Duration,
    share: impl Future<Output = Result<Share, NeverFits>>,
) -> Option<Result<Share, NeverFits>> {
    tokio::time::timeout(patience, share).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_stay_below_the_limit() {
        for limit in [SMALLEST_LIMIT, DEFAULT_LIMIT, 512 * MIB] {
            let budget = Budget::new(limit);
            let bodies = [&budget.bodies, &budget.small_bodies];
            let pools = bodies.into_iter().chain([&budget.trees, &budget.content]);
            let shares: u64 = pools.map(Pool::capacity).sum();
            let shares = shares + budget.transfers.capacity() * TRANSFER;
            assert_eq!(shares + RESERVE, limit);
        }
    }

    #[test]
    fn the_shipped_limit_takes_the_largest_review_and_several_transfers() {
        let budget = Budget::new(DEFAULT_LIMIT);
        assert!(budget.bodies.capacity() >= 8 * MIB);
        assert!(budget.trees.capacity() >= 30 * MIB);
        assert!(budget.content.capacity() >= 40 * MIB);
        assert!(budget.transfers.capacity() >= 4);
    }
}
