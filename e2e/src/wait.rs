//! Waits for conditions with a deadline, so that no scenario sleeps for a fixed time.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Time between two calls of `look`.
const INTERVAL: Duration = Duration::from_millis(25);

/// Calls `look` repeatedly until it returns `Some`, at most for `deadline`. An `Err` of `look` does
/// not end the wait. After the deadline, the error contains the last `Err`. The error begins with
/// `what`.
pub async fn until<T, F, Fut>(deadline: Duration, what: &str, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    let began = Instant::now();
    let mut last = None;
    loop {
        // A call may hang, so its time limit is the remaining time.
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
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Like [`until`], for a condition.
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
