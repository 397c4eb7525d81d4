//! Watches of objects. After an event that cannot be parsed, the watch lists all objects again. The
//! delay before the list grows with consecutive failures.

use std::fmt::Debug;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, stream};
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::{self, DefaultBackoff, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

type Events<K> = BoxStream<'static, watcher::Result<Event<K>>>;

/// Watches all objects of `api` that `config` selects. The stream does not end. After an error, the
/// stream waits before it continues. The wait grows with consecutive errors. A complete list or an
/// event resets the wait, but the start of a list does not.
pub fn watch_events<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    relisting(move || watcher(api.clone(), config.clone()).boxed())
}

/// Returns the events of a stream. `open` opens the stream, and opens the stream again after an
/// event that cannot be parsed.
fn relisting<K: Send + 'static>(
    mut open: impl FnMut() -> Events<K> + Send + 'static,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + 'static {
    let events = open();
    let start = (open, events, DefaultBackoff::default(), None);
    stream::unfold(
        start,
        |(mut open, mut events, mut backoff, delay)| async move {
            if let Some(delay) = delay {
                tokio::time::sleep(delay).await;
            }
            let event = events.next().await?;
            let delay = match &event {
                Ok(Event::Init | Event::InitApply(_)) => None,
                Ok(_) => {
                    backoff.reset();
                    None
                }
                Err(error) => {
                    if is_lost_event(error) {
                        events = open();
                    }
                    backoff.next()
                }
            };
            Some((event, (open, events, backoff, delay)))
        },
    )
}

/// Returns true if a received event cannot be parsed. Without this check, the watcher would ignore
/// the change in this event. The client tries to parse such an event as a [`kube::core::Status`],
/// so the error can also be `Api`.
fn is_lost_event(error: &watcher::Error) -> bool {
    matches!(
        error,
        watcher::Error::WatchFailed(kube::Error::SerdeError(_) | kube::Error::Api(_))
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use serde::de::Error as _;
    use tokio::time::Instant;

    use super::*;

    fn not_understood() -> watcher::Error {
        watcher::Error::WatchFailed(kube::Error::SerdeError(serde_json::Error::custom("time")))
    }

    /// Returns an error with status 410 and reason `Expired`: the API server no longer has the
    /// resource version.
    fn expired() -> watcher::Error {
        let status = kube::core::Status::failure("too old resource version", "Expired");
        watcher::Error::WatchFailed(kube::Error::Api(Box::new(status.with_code(410))))
    }

    /// Opens streams with these events, and counts the streams.
    fn opened(
        events: impl Fn() -> Vec<watcher::Result<Event<u8>>> + Send + 'static,
    ) -> (Arc<AtomicUsize>, Events<u8>) {
        let count = Arc::<AtomicUsize>::default();
        let counted = count.clone();
        let events = relisting(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            stream::iter(events()).chain(stream::pending()).boxed()
        });
        (count, events.boxed())
    }

    #[tokio::test(start_paused = true)]
    async fn lists_again_after_an_event_that_was_not_understood() {
        for failure in [not_understood, expired] {
            let (count, events) =
                opened(move || vec![Ok(Event::Init), Ok(Event::InitDone), Err(failure())]);
            let events: Vec<_> = events.take(5).collect().await;
            assert!(matches!(events[2], Err(watcher::Error::WatchFailed(_))));
            assert!(matches!(
                events[3..],
                [Ok(Event::Init), Ok(Event::InitDone)]
            ));
            assert_eq!(count.load(Ordering::Relaxed), 2);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn goes_on_after_a_connection_that_broke() {
        let (count, events) = opened(|| {
            let broken = kube::Error::ReadEvents(std::io::Error::other("reset"));
            vec![
                Err(watcher::Error::WatchFailed(broken)),
                Ok(Event::Apply(1)),
            ]
        });
        let events: Vec<_> = events.take(2).collect().await;
        assert!(matches!(events[1], Ok(Event::Apply(1))));
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "it measures a paused clock")]
    async fn listings_that_fail_are_tried_less_and_less_often() {
        let (_, events) = opened(|| {
            let attempt = || {
                [
                    Ok(Event::Init),
                    Ok(Event::InitApply(1)),
                    Err(watcher::Error::NoResourceVersion),
                ]
            };
            (0..10).flat_map(|_| attempt()).collect()
        });
        let began = Instant::now();
        let _events: Vec<_> = events.take(30).collect().await;
        assert!(
            began.elapsed() > Duration::from_secs(90),
            "{:?}",
            began.elapsed()
        );
    }
}
