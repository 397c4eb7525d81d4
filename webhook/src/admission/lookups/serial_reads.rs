//! Reads of which only one runs at a time, because each read needs much memory. Requesters take
//! turns, so that many reviews of one requester do not delay the reviews of other requesters.

use crate::budget::{Budget, Pool};

/// Runs one read at a time.
pub(super) struct SerialReads(Pool);

impl Default for SerialReads {
    fn default() -> Self {
        Self(Pool::new(1))
    }
}

impl SerialReads {
    /// Runs `reading` for a review of `requester`. Waits before that while another read runs.
    /// Requesters with waiting reads take turns.
    pub(super) async fn run<T>(&self, requester: &str, reading: impl Future<Output = T>) -> T {
        let turn = self.0.take(1, Budget::part(&self.0, requester, 1));
        // Taking cannot fail, because a share of one unit fits into the pool.
        let _turn = turn.await;
        reading.await
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_read_runs_at_a_time_and_requesters_take_turns() {
        let reads = SerialReads::default();
        let wait = |requester: &'static str| Box::pin(reads.run(requester, ready(())));
        let mut running = Box::pin(reads.run("mallory", pending::<()>()));
        assert!(running.as_mut().now_or_never().is_none());
        let mut waiting: Vec<_> = (0..100).map(|_| wait("mallory")).collect();
        let mut others = ["ana", "ben"].map(wait);
        for one in waiting.iter_mut().chain(&mut others) {
            assert!(one.as_mut().now_or_never().is_none());
        }
        drop(running);
        // The earlier reads of the other requester wait.
        let first = waiting.remove(0);
        assert!(first.now_or_never().is_none());
        for one in others {
            assert!(one.now_or_never().is_some());
        }
        assert!(waiting.remove(0).now_or_never().is_some());
        drop(waiting);
        assert_eq!(reads.0.used(), 0);
    }
}
