//! Cancellation of long work on another thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// [`Cancellation::is_cancelled`] calls `is_exceeded` once in this number of calls.
const CALLS: u32 = 1024;

/// A flag that requests the cancellation of work. [`Self::cancel`] sets the flag in all clones.
#[derive(Clone, Default)]
pub struct Cancellation(Arc<State>);

#[derive(Default)]
struct State {
    flag: AtomicBool,
    calls: AtomicU32,
    is_exceeded: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl Cancellation {
    /// Returns a flag that is also set when `is_exceeded` returns true, for example because the
    /// work has exceeded its CPU time limit. [`Self::is_cancelled`] calls `is_exceeded` once in
    /// 1024 calls, on the thread of the caller. [`Self::is_cancelled_now`] calls `is_exceeded` each
    /// time.
    pub fn with_limit(is_exceeded: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(State {
            is_exceeded: Some(Box::new(is_exceeded)),
            ..State::default()
        }))
    }

    /// Sets the flag. All clones then report the cancellation.
    pub fn cancel(&self) {
        self.0.flag.store(true, Ordering::Relaxed);
    }

    /// Returns true if the flag is set.
    pub fn is_cancelled(&self) -> bool {
        if self.0.is_exceeded.is_some() {
            let calls = self.0.calls.fetch_add(1, Ordering::Relaxed);
            if calls.is_multiple_of(CALLS) {
                return self.is_cancelled_now();
            }
        }
        self.0.flag.load(Ordering::Relaxed)
    }

    /// Returns true if the flag is set, like [`Self::is_cancelled`], but calls `is_exceeded` each
    /// time. Call this function before a step that can be long, such as parsing a document or a
    /// file.
    pub fn is_cancelled_now(&self) -> bool {
        if self.0.flag.load(Ordering::Relaxed) {
            return true;
        }
        let limit = self.0.is_exceeded.as_ref();
        let is_exceeded = limit.is_some_and(|limit| limit());
        if is_exceeded {
            self.cancel();
        }
        is_exceeded
    }
}

impl fmt::Debug for Cancellation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cancellation").field(&self.0.flag).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceeded_limit_cancels_all_clones() {
        let exceeded = Arc::new(AtomicBool::new(false));
        let limit = exceeded.clone();
        let work = Cancellation::with_limit(move || limit.load(Ordering::Relaxed));
        let other = work.clone();
        assert!(!work.is_cancelled());
        exceeded.store(true, Ordering::Relaxed);
        assert!((0..CALLS).any(|_| work.is_cancelled()));
        assert!(work.is_cancelled() && other.is_cancelled());
    }

    #[test]
    fn limit_is_called_each_time_on_request() {
        let exceeded = Arc::new(AtomicBool::new(false));
        let limit = exceeded.clone();
        let work = Cancellation::with_limit(move || limit.load(Ordering::Relaxed));
        assert!(!work.is_cancelled() && !work.is_cancelled_now());
        exceeded.store(true, Ordering::Relaxed);
        assert!(!work.is_cancelled());
        assert!(work.is_cancelled_now() && work.is_cancelled());
        let flag = Cancellation::default();
        assert!(!flag.is_cancelled_now());
        flag.cancel();
        assert!(flag.is_cancelled_now());
    }
}
