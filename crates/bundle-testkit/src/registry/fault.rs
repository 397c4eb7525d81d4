//! Faults of a registry.

use std::time::Duration;

/// Fault of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Manifests are altered, and sent under their original digest.
    AlteredManifest,
    /// Blobs are altered, and sent under their original digest.
    LyingBlob,
    /// Blobs end after their first half, without an error.
    TruncatedBlob,
    /// The connection breaks in the middle of a blob.
    CutBlob,
    /// Blobs stop in the middle, and the connection stays open.
    StallingBlob,
    /// Blobs are sent in pieces of this size, with a pause before each piece.
    SlowBlob {
        /// Number of bytes in each piece.
        piece: usize,
        /// Pause before each piece.
        pause: Duration,
    },
    /// No request gets a response.
    NoResponse,
    /// Only `GET /v2/` gets a response.
    NoContent,
    /// Every response is an HTML page, like the login page of a proxy.
    Html,
    /// Manifests have 400 MiB, and are sent in pieces without a declared length.
    HugeManifest,
    /// The next requests get this status, with `Retry-After: 0`.
    Busy {
        /// HTTP status of the responses.
        status: u16,
        /// Number of requests that fail.
        times: u32,
    },
    /// Requests for content without the required login get status 404. `GET /v2/` without the login
    /// still gets status 401.
    HiddenContent,
    /// The referrers API returns this status.
    ReferrersApi(u16),
    /// The referrers API returns this status and an HTML page.
    ReferrersPage(u16),
    /// The referrers API responds only after this fault has been removed.
    HeldReferrers,
    /// There is no referrers API, and the fallback tag returns the subject itself instead of a
    /// list.
    ReferrersTagIsSubject,
    /// There is no referrers API, and requests for the fallback tag get this status.
    ReferrersTag(u16),
    /// The three locations of signatures return these statuses. With 200, the location responds
    /// correctly. With 204, the referrers API returns an empty list.
    SignatureLocations {
        /// Status of the referrers API.
        api: u16,
        /// Status of the fallback tag.
        list: u16,
        /// Status of the tags `.sig` and `.att` of cosign 2.
        older: u16,
    },
    /// The attestation tag of cosign 2, `.att`, returns this status.
    Attestations(u16),
    /// Tokens expire after one second. After this number of tokens, the token service returns
    /// tokens that are too large.
    HugeTokens {
        /// Number of valid tokens before the first token that is too large.
        after: u32,
    },
    /// Another client overwrites the list of referrers immediately after a write. The fault occurs
    /// this number of times.
    LostUpdates(u32),
    /// Blob requests are redirected to this URL.
    RedirectBlobs(String),
    /// Some blob responses end early.
    BrokenBlob {
        /// Number of bytes that each of these responses contains.
        after: usize,
        /// Number of responses that end early.
        times: u32,
        /// Handling of the `Range` header.
        ranges: Ranges,
    },
    /// After the bytes of a blob, the response continues with 400 MiB of other bytes. It declares
    /// no length.
    EndlessBlob,
    /// Manifests are correct, but the header `Docker-Content-Digest` has another digest.
    LyingHeader,
    /// Manifests are sent with this media type instead of their own.
    WrongMediaType(String),
    /// A list of referrers or tags never ends: each next page is the first page again.
    LoopingList,
    /// Lists of referrers and of tags have 400 MiB, and are sent in pieces without a declared
    /// length.
    HugeList,
    /// The next requests get this status and this `Retry-After`.
    BusyUntil {
        /// HTTP status of the responses.
        status: u16,
        /// Number of requests that fail.
        times: u32,
        /// A number of seconds, or a date.
        retry_after: String,
    },
    /// Fault of uploads.
    Upload(UploadFault),
}

/// Handling of the `Range` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranges {
    /// Returns the requested range.
    Honored,
    /// Ignores the header and returns the whole blob.
    Ignored,
    /// Returns 206 with a range that starts one byte too early. The response declares this range.
    ShiftedRange,
    /// Declares the requested range, and sends the beginning of the blob.
    WrongRange,
    /// Returns 416.
    RangeNotSatisfiable,
}

/// Faults and unusual behavior of uploads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadFault {
    /// The response to the first request has no `Location`. The name of the upload is in
    /// `Docker-Upload-UUID`.
    NoLocation,
    /// The response to the first request has neither `Location` nor `Docker-Upload-UUID`.
    /// Monolithic uploads with a digest work.
    Nameless,
    /// The `Location` of the first response is this URL on another host.
    Elsewhere(String),
    /// Chunked uploads are rejected.
    RejectsChunks,
    /// Monolithic uploads are rejected.
    OnlyParts,
    /// Requests with more bytes than this number are rejected with 413.
    Small(usize),
    /// The connection breaks in the middle of some requests. The registry keeps the received bytes.
    Broken {
        /// Number of bytes that the server reads from each request.
        after: usize,
        /// Number of requests that fail.
        times: u32,
    },
    /// The connection breaks in the middle of some requests. The registry loses the upload and the
    /// received bytes.
    BrokenAndLost {
        /// Number of bytes that the server reads from each request.
        after: usize,
        /// Number of requests that fail.
        times: u32,
    },
    /// The server stops reading after this many bytes, and keeps the connection open.
    Stalling(usize),
    /// Only the first half of each chunk is stored. The response declares the range of the stored
    /// bytes.
    Halved,
    /// The response to each chunk declares more bytes than were sent.
    Exaggerated,
    /// The upload succeeds, but the blob does not exist afterwards.
    BlobMissing,
    /// The upload succeeds, and the response declares another digest.
    Misnamed,
    /// The last request is redirected to this URL.
    Redirected(String),
    /// Mounts are rejected with this status.
    NoMounts(u16),
    /// The last request of an upload gets this status, and its content is lost. The fault occurs
    /// this number of times.
    Failing {
        /// HTTP status of the response.
        status: u16,
        /// Number of requests that fail.
        times: u32,
    },
}
