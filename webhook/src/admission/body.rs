//! The body of a review while it arrives: its first bytes, which contain the name of the requester,
//! and the time limits for its bytes.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use futures::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use super::review::{PrefixRequester, requester_in_prefix};

/// Maximum time for which a body can arrive more slowly than `MIN_BODY_RATE`. A body of which no
/// byte arrives uses its memory for this time.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum rate at which a body must arrive, in bytes per second. API servers are in the same
/// network, so they send bodies faster.
const MIN_BODY_RATE: u64 = 1 << 20;
/// Number of first bytes of a body in which the name of the requester is searched. API servers send
/// this number of bytes with the head of the request, because it is the flow-control window of the
/// request.
const PREFIX_BYTES: usize = 10 << 10;
/// Maximum time until the first bytes of a body arrive. After this time, the requester counts as
/// unknown.
const PREFIX_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of pieces in which the first bytes of a body can arrive. The bytes are parsed
/// again after each piece. API servers send the first bytes in one piece.
const PREFIX_PIECES: usize = 16;

/// The reason why a body was not received.
#[derive(Debug)]
pub(super) enum BodyError {
    /// The body is too long, or its connection failed.
    Invalid(String),
    TooSlow,
}

/// A body that arrives.
pub(super) struct ArrivingBody {
    pieces: BodyDataStream,
    /// Maximum length of the body, in bytes.
    limit: usize,
    /// The bytes that have arrived.
    bytes: Vec<u8>,
    /// The end of the body, or the reason why no further bytes are received.
    end: Option<Result<(), BodyError>>,
    /// Time in which the first bytes of the body arrived.
    prefix_time: Duration,
}

impl ArrivingBody {
    /// Creates a body of at most `limit` bytes. No byte is received yet.
    pub(super) fn new(body: Body, limit: usize) -> Self {
        Self {
            pieces: body.into_data_stream(),
            limit,
            bytes: Vec::new(),
            end: None,
            prefix_time: Duration::ZERO,
        }
    }

    /// Receives the first bytes of the body, and returns the name of the requester. The wait ends
    /// at `end` at the latest. Returns `None` if the first bytes contain no name, or do not arrive
    /// in time.
    ///
    /// No memory is reserved for these bytes. The caller must limit the number of these calls that
    /// run at the same time.
    pub(super) async fn requester(&mut self, end: Instant) -> Option<String> {
        let start = Instant::now();
        let end = end.min(start + PREFIX_TIMEOUT);
        let mut requester = PrefixRequester::Incomplete;
        for _ in 0..PREFIX_PIECES {
            let is_late = timeout_at(end, self.receive_piece()).await.is_err();
            let prefix = &self.bytes[..self.bytes.len().min(PREFIX_BYTES)];
            requester = requester_in_prefix(prefix);
            let is_known = requester != PrefixRequester::Incomplete;
            let is_last = self.end.is_some() || self.bytes.len() >= PREFIX_BYTES;
            if is_late || is_known || is_last {
                break;
            }
        }
        self.prefix_time = start.elapsed();
        match requester {
            PrefixRequester::Known(name) => Some(name),
            PrefixRequester::Incomplete | PrefixRequester::Unknown => None,
        }
    }

    /// Receives the whole body. `announced` is its length in bytes, if this length is known. Fails
    /// if the body is too long, or if it arrives too slowly. The rate is checked while the body
    /// arrives, so that the memory of a body that never arrives is soon free.
    pub(super) async fn receive(mut self, announced: Option<usize>) -> Result<Vec<u8>, BodyError> {
        let announced = announced.unwrap_or_default();
        let further = announced.saturating_sub(self.bytes.len());
        self.bytes.reserve_exact(further);
        let start = Instant::now();
        // The time until the first bytes arrived also counts.
        let delay = BODY_TIMEOUT.saturating_sub(self.prefix_time);
        loop {
            if let Some(end) = self.end.take() {
                return end.map(|()| self.bytes);
            }
            let earned = Duration::from_millis(self.bytes.len() as u64 * 1_000 / MIN_BODY_RATE);
            let piece = timeout_at(start + delay + earned, self.receive_piece()).await;
            piece.map_err(|_| BodyError::TooSlow)?;
        }
    }

    /// Receives the next bytes, or the end of the body. If the future is dropped, no bytes are
    /// lost.
    async fn receive_piece(&mut self) {
        if self.end.is_some() {
            return;
        }
        match self.pieces.next().await {
            None => self.end = Some(Ok(())),
            Some(Err(error)) => {
                let message = format!("cannot receive the review: {error}");
                self.end = Some(Err(BodyError::Invalid(message)));
            }
            Some(Ok(piece)) if self.bytes.len() + piece.len() > self.limit => {
                let limit = self.limit;
                let message = format!("the review is larger than the limit of {limit} bytes");
                self.end = Some(Err(BodyError::Invalid(message)));
            }
            Some(Ok(piece)) => self.bytes.extend_from_slice(&piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures::stream;

    use super::*;

    const PREFIX: &str = r#"{"kind":"AdmissionReview","request":{"userInfo":{"username":"ana"},"#;

    /// Returns a body that arrives in these pieces. The body has no end if `is_complete` is false.
    fn body(pieces: &[&str], is_complete: bool) -> ArrivingBody {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|piece| Ok::<_, io::Error>(piece.as_bytes().to_vec()))
            .collect();
        let pieces = stream::iter(pieces);
        let body = if is_complete {
            Body::from_stream(pieces)
        } else {
            Body::from_stream(pieces.chain(stream::pending()))
        };
        ArrivingBody::new(body, 1 << 20)
    }

    fn in_a_minute() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test(start_paused = true)]
    async fn first_bytes_contain_the_requester_and_are_part_of_the_body() {
        let (first, second) = PREFIX.split_at(50);
        let rest = "\"object\":{}}}";
        let mut arriving = body(&[first, second, rest], true);
        let requester = arriving.requester(in_a_minute()).await;
        assert_eq!(requester.as_deref(), Some("ana"));
        // No bytes after the name were received.
        assert_eq!(arriving.bytes, PREFIX.as_bytes());
        let all = arriving.receive(Some(PREFIX.len() + rest.len())).await;
        assert_eq!(all.unwrap(), format!("{PREFIX}{rest}").as_bytes());
    }

    #[tokio::test(start_paused = true)]
    async fn requester_is_unknown_if_the_first_bytes_contain_no_name() {
        let spaces = " ".repeat(PREFIX_BYTES - 1);
        let early_end = &PREFIX[..PREFIX.len() / 2];
        let long = [spaces.as_str(), PREFIX];
        let bytes: Vec<_> = PREFIX.split("").filter(|it| !it.is_empty()).collect();
        for (pieces, received) in [
            (&[early_end][..], early_end.len()),
            (&long[..], spaces.len() + PREFIX.len()),
            (&bytes[..], PREFIX_PIECES),
            (&[][..], 0),
        ] {
            let mut arriving = body(pieces, true);
            assert_eq!(arriving.requester(in_a_minute()).await, None);
            assert_eq!(arriving.bytes.len(), received);
            let all = arriving.receive(None).await.unwrap();
            assert_eq!(all, pieces.concat().as_bytes());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_the_first_bytes_counts_for_the_time_limit_of_the_body() {
        let start = Instant::now();
        let mut arriving = body(&[&PREFIX[..10]], false);
        assert_eq!(arriving.requester(in_a_minute()).await, None);
        assert_eq!(start.elapsed().as_secs(), PREFIX_TIMEOUT.as_secs());
        let all = arriving.receive(Some(100)).await;
        assert!(matches!(all, Err(BodyError::TooSlow)));
        assert_eq!(start.elapsed().as_secs(), BODY_TIMEOUT.as_secs());
        // The deadline of the review can end the wait earlier.
        let start = Instant::now();
        let mut arriving = body(&[], false);
        let end = start + Duration::from_millis(500);
        assert_eq!(arriving.requester(end).await, None);
        assert!(start.elapsed() < PREFIX_TIMEOUT);
    }

    #[tokio::test]
    async fn body_above_its_announced_length_is_rejected() {
        let mut arriving = body(&[PREFIX, PREFIX], true);
        let limit = PREFIX.len() + 1;
        arriving.limit = limit;
        let requester = arriving.requester(in_a_minute()).await;
        assert_eq!(requester.as_deref(), Some("ana"));
        let error = arriving.receive(Some(PREFIX.len())).await.unwrap_err();
        let BodyError::Invalid(message) = error else {
            panic!("the body is too long");
        };
        let expected = format!("the review is larger than the limit of {limit} bytes");
        assert_eq!(message, expected);
    }
}
