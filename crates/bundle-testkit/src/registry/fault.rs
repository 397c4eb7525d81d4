//! The ways in which a registry can be at fault.
//! Not here: how each of them looks on the wire (answer).

/// One way to be at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Manifests are changed on the way and sent under their old digest.
    LyingManifest,
    /// Blobs are changed on the way.
    LyingBlob,
    /// Blobs end after their first half, as if that were all.
    TruncatedBlob,
    /// The connection ends in the middle of a blob.
    CutBlob,
    /// Blobs stop in the middle, and the connection stays.
    StallingBlob,
    /// Nothing is ever answered.
    Silent,
    /// Every answer is a web page, as a proxy's login page is.
    Html,
    /// Manifests of 400 MiB, sent piece by piece without saying how long they are.
    HugeManifest,
    /// The next so many requests are answered with this status, and `Retry-After: 0`.
    Busy {
        /// HTTP status.
        status: u16,
        /// How many requests are left.
        times: u32,
    },
    /// The referrers API answers with this status.
    ReferrersApi(u16),
    /// There is no referrers API, and the tag that stands in for it is answered with this status.
    ReferrersTag(u16),
    /// What others wrote replaces the list of referrers right after it was written, so many times.
    LostUpdates(u32),
    /// Blobs are to be found at this URL instead.
    RedirectBlobs(String),
}
