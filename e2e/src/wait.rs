//! Waits for conditions with a deadline, so that no scenario sleeps for a fixed time.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Shortest time between two calls of `look`.
const INTERVAL: Duration = Duration::from_millis(25);
/// Longest time between two calls of `look`.
const LONGEST_INTERVAL: Duration = Duration::from_millis(500);

/// Calls `look` repeatedly until it returns `Some`, and returns this value. An `Err` of `look` does
/// not end the wait. After `deadline`, returns an error that begins with `what` and contains the
/// last `Err`. The pause after a slow call is longer, so that waits do not slow down the programs
/// that they wait for.
pub async fn until<T, F, Fut>(deadline: Duration, what: &str, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    let began = Instant::now();
    let mut last = None;
    loop {
        let called = Instant::now();
        // A call may hang, so the remaining time is the time limit of the call.
        match tokio::time::timeout(deadline.saturating_sub(began.elapsed()), look()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => last = None,
            Ok(Err(error)) => last = Some(error),
            Err(_) => {}
        }
        if began.elapsed() >= deadline {
            let why = last
                .map(|error| format!("; last: {error:#}"))
                .unwrap_or_default();
            bail!("{what}: not within {:.1} s{why}", deadline.as_secs_f64());
        }
        let remaining = deadline.saturating_sub(began.elapsed());
        tokio::time::sleep(interval_after(called.elapsed()).min(remaining)).await;
    }
}

/// Returns the time until the next call of `look` after a call that took `took`.
fn interval_after(took: Duration) -> Duration {
    (took * 3 / 2).clamp(INTERVAL, LONGEST_INTERVAL)
}

/// Like [`until`], but waits until `look` returns `true`.
pub async fn until_true<F, Fut>(deadline: Duration, what: &str, mut look: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<bool>>,
{
    until(deadline, what, || {
        let answer = look();
        async move { Ok(answer.await?.then_some(())) }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_the_value_once_available() {
        let mut looks = 0;
        let value = until(Duration::from_secs(5), "third look", || {
            looks += 1;
            std::future::ready(Ok((looks == 3).then_some("there")))
        });
        assert_eq!(value.await.unwrap(), "there");
    }

    #[test]
    fn interval_grows_with_the_duration_of_a_look() {
        for (took, expected) in [(0, 25), (10, 25), (100, 150), (300, 450), (60_000, 500)] {
            assert_eq!(
                interval_after(Duration::from_millis(took)),
                Duration::from_millis(expected)
            );
        }
    }

    #[tokio::test]
    async fn interval_after_a_slow_look_ends_at_the_deadline() {
        let began = Instant::now();
        let result = until_true(Duration::from_millis(400), "the pod answers", || async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok(false)
        });
        result.await.unwrap_err();
        let elapsed = began.elapsed();
        assert!(elapsed < Duration::from_millis(700), "{elapsed:?}");
    }

    #[tokio::test]
    async fn timeout_reports_last_error_and_deadline() {
        let result = until_true(Duration::from_millis(60), "the pod answers", || async {
            bail!("connection refused")
        })
        .await;
        assert_eq!(
            result.unwrap_err().to_string(),
            "the pod answers: not within 0.1 s; last: connection refused"
        );
        let hangs = until_true(
            Duration::from_millis(60),
            "the pod answers",
            std::future::pending,
        )
        .await;
        assert_eq!(
            hangs.unwrap_err().to_string(),
            "the pod answers: not within 0.1 s"
        );
    }
}
