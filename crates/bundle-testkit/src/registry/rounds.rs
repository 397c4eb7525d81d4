//! Rounds of requests. A client sends the requests of one round at the same time, and the next
//! round after the responses.

use std::time::Duration;

use super::{Registry, Shared, lock};

/// Time without a new request after which a round ends. It is longer than the delays that a busy
/// machine can cause.
const QUIET: Duration = Duration::from_millis(200);

/// Number of rounds and requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoundCount {
    /// Number of rounds.
    pub rounds: usize,
    /// Number of requests in all rounds, with `GET /v2/`.
    pub requests: usize,
}

/// Current count, and the number of ended rounds.
#[derive(Debug, Default)]
pub(super) struct RoundCounter {
    count: RoundCount,
    ended: usize,
}

impl RoundCounter {
    /// Adds a request. Returns its round, and the number of requests so far.
    fn add(&mut self) -> (usize, usize) {
        if self.count.rounds == self.ended {
            self.count.rounds += 1;
        }
        self.count.requests += 1;
        (self.count.rounds, self.count.requests)
    }
}

/// If rounds are counted, adds a request, and waits until its round has ended.
pub(super) async fn wait_for_end(shared: &Shared) {
    let added = lock(&shared.rounds).as_mut().map(RoundCounter::add);
    let Some((round, mut requests)) = added else {
        return;
    };
    loop {
        tokio::time::sleep(QUIET).await;
        let mut rounds = lock(&shared.rounds);
        let Some(counter) = rounds.as_mut().filter(|counter| counter.ended < round) else {
            return;
        };
        if counter.count.requests == requests {
            counter.ended = round;
            return;
        }
        requests = counter.count.requests;
    }
}

impl Registry {
    /// Counts rounds from now on. The registry delays all responses of a round until no further
    /// request arrives.
    pub fn count_rounds(&self) {
        *lock(&self.shared.rounds) = Some(RoundCounter::default());
    }

    /// Returns the rounds since the last call of [`Self::count_rounds`].
    pub fn rounds(&self) -> RoundCount {
        let rounds = lock(&self.shared.rounds);
        let count = rounds.as_ref().map(|rounds| rounds.count);
        count.unwrap_or_default()
    }
}
