//! Rate limit for reconciles of one object that events of other objects trigger. Users can write
//! the other objects as often as they want. The caller provides the time.

use std::time::Duration;

/// Maximum number of consecutive reconciles without a delay.
const BURST: u32 = 20;
/// Interval after which one more reconcile without a delay is possible.
const INTERVAL: Duration = Duration::from_secs(2);

/// The start of the reconcile that handles an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconcileStart {
    /// At once.
    Now,
    /// After this delay.
    After(Duration),
    /// The delayed reconcile of an earlier event, which has not started yet, also handles this
    /// event.
    Scheduled,
}

/// State of the rate limit for one object. No event is lost: a reconcile starts at or after each
/// event.
///
/// Times are durations since a fixed point in time that the caller chooses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventRate {
    /// The time from which [`BURST`] reconciles can again start without a delay.
    full_at: Duration,
    /// The time of the latest delayed reconcile.
    scheduled: Duration,
}

impl EventRate {
    /// Returns the time at which all reconciles of a burst can start without a delay again.
    pub fn full_at(self) -> Duration {
        self.full_at
    }

    /// Returns the state after an event at `now`, and the start of its reconcile.
    #[must_use]
    pub fn event(self, now: Duration) -> (Self, ReconcileStart) {
        if now < self.scheduled {
            return (self, ReconcileStart::Scheduled);
        }
        let full_at = self.full_at.max(now).saturating_add(INTERVAL);
        let due = full_at.saturating_sub(INTERVAL.saturating_mul(BURST));
        if due <= now {
            return (Self { full_at, ..self }, ReconcileStart::Now);
        }
        let state = Self {
            full_at,
            scheduled: due,
        };
        (state, ReconcileStart::After(due.saturating_sub(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1_000);
    const PAUSE: Duration = Duration::from_millis(100);

    /// Returns the times of the reconciles for one event every 100 ms.
    fn reconciles(rate: &mut EventRate, events: u32, start: Duration) -> Vec<Duration> {
        let mut times: Vec<Duration> = Vec::new();
        for number in 0..events {
            let now = start + PAUSE * number;
            let (next, reconcile) = rate.event(now);
            *rate = next;
            match reconcile {
                ReconcileStart::Now => times.push(now),
                ReconcileStart::After(delay) => times.push(now + delay),
                ReconcileStart::Scheduled => {}
            }
            // The last reconcile starts at or after the last event.
            assert!(times.last().is_some_and(|last| *last >= now), "{now:?}");
        }
        times
    }

    #[test]
    fn many_events_start_reconciles_at_an_interval_after_a_burst() {
        let mut rate = EventRate::default();
        let times = reconciles(&mut rate, 600, START);
        // In one minute: the burst of 20, and one reconcile in each of 30 intervals.
        assert_eq!(times.len(), 50, "{times:?}");
        assert_eq!(times[20], START + PAUSE * BURST);
        let late = &times[21..];
        assert!(late.windows(2).all(|pair| pair[1] == pair[0] + INTERVAL));
    }

    #[test]
    fn burst_is_possible_again_after_a_quiet_time() {
        let mut rate = EventRate::default();
        reconciles(&mut rate, 600, START);
        let later = START + PAUSE * 600 + INTERVAL * (BURST + 1);
        let times = reconciles(&mut rate, BURST, later);
        let at_once: Vec<Duration> = (0..BURST).map(|number| later + PAUSE * number).collect();
        assert_eq!(times, at_once);
    }
}
