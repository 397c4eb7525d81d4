//! Parses the path of a request, which selects a Bundle, and the headers, which select a range of
//! bytes.

use axum::http::{HeaderMap, Method, header};
use bundle_core::names::KubeName;
use bundle_core::reference::Digest;

use super::callers::PathPermission;
use crate::config::content::ContentPaths;

/// The Bundle that a path names, and the kind of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestTarget {
    /// `/bundles/NAME.tgz`, with the configured prefix.
    Content(KubeName),
    /// `/uploads/NAME.tgz`, with the configured prefix.
    Upload(KubeName),
}

impl RequestTarget {
    /// Parses a path. The path is not percent-decoded, because no valid name needs encoding.
    pub(super) fn of(path: &str, paths: &ContentPaths) -> Option<Self> {
        let bundle = |prefix: &str| {
            let file = path.strip_prefix(prefix)?;
            file.strip_suffix(".tgz")?.parse().ok()
        };
        let content = bundle(&paths.downloads.prefix).map(Self::Content);
        content.or_else(|| bundle(&paths.uploads.prefix).map(Self::Upload))
    }

    /// Returns the HTTP methods that are allowed for the path.
    pub(super) fn methods(&self) -> &'static [Method] {
        match self {
            Self::Content(_) => &[Method::GET, Method::HEAD],
            Self::Upload(_) => &[Method::PUT],
        }
    }

    /// Returns the required permission. The verbs are the same as in kube-rbac-proxy, which RukPak
    /// uses as the proxy of both services.
    pub(super) fn permission<'a>(&self, paths: &'a ContentPaths) -> PathPermission<'a> {
        let (verb, path) = match self {
            Self::Content(_) => ("get", &paths.downloads),
            Self::Upload(_) => ("update", &paths.uploads),
        };
        PathPermission {
            verb,
            role: &path.role,
        }
    }
}

/// The bytes that a request selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteSelection {
    /// All bytes of the archive are selected.
    All,
    /// The bytes from `first` to `last`. Both bytes are included.
    Range { first: u64, last: u64 },
    /// No bytes, because the caller already has this archive.
    NotModified,
    /// The selected range is outside of the archive.
    OutOfRange,
}

impl ByteSelection {
    /// Returns the bytes of an archive that `headers` select. An unsupported range selects all
    /// bytes, and so do several ranges (RFC 9110, section 14.2).
    pub(super) fn of(headers: &HeaderMap, size: u64, digest: &Digest) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let tag = entity_tag(digest);
        let has_same = |known: &str| {
            let mut known = known.split(',').map(str::trim);
            known.any(|known| known == "*" || known.trim_start_matches("W/") == tag)
        };
        if text(header::IF_NONE_MATCH).is_some_and(has_same) {
            return Self::NotModified;
        }
        // If the caller has bytes of another archive (`If-Range`), the range is ignored.
        if text(header::IF_RANGE).is_some_and(|known| known != tag) {
            return Self::All;
        }
        let Some(Ok(ranges)) = text(header::RANGE).map(http_range_header::parse_range_header)
        else {
            return Self::All;
        };
        if ranges.ranges.len() != 1 {
            return Self::All;
        }
        match ranges.validate(size).as_deref() {
            Ok([range]) => Self::Range {
                first: *range.start(),
                last: *range.end(),
            },
            _ => Self::OutOfRange,
        }
    }
}

/// Returns the `ETag` of an archive with this digest.
pub(super) fn entity_tag(digest: &Digest) -> String {
    format!("\"{digest}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::content::ContentPath;

    fn paths(downloads: &str, uploads: &str) -> ContentPaths {
        let path = |prefix: &str, role: &str| ContentPath {
            prefix: prefix.to_owned(),
            role: role.to_owned(),
        };
        ContentPaths {
            downloads: path(downloads, "bundle-reader"),
            uploads: path(uploads, "bundle-uploader"),
        }
    }

    #[test]
    fn prefixes_and_roles_are_settings() {
        let mut paths = paths("/v1/", "/v1/uploads/");
        paths.uploads.role = "sender".to_owned();
        let web = || "web".parse().unwrap();
        let content = RequestTarget::of("/v1/web.tgz", &paths).unwrap();
        assert_eq!(content, RequestTarget::Content(web()));
        let upload = RequestTarget::of("/v1/uploads/web.tgz", &paths).unwrap();
        assert_eq!(upload, RequestTarget::Upload(web()));
        assert_eq!(upload.permission(&paths).role, "sender");
        assert_eq!(RequestTarget::of("/bundles/web.tgz", &paths), None);
    }

    #[test]
    fn paths_name_one_bundle_and_nothing_else() {
        let paths = paths("/bundles/", "/uploads/");
        let upload = RequestTarget::of("/uploads/web.tgz", &paths);
        assert_eq!(upload, Some(RequestTarget::Upload("web".parse().unwrap())));
        assert_eq!(
            RequestTarget::of("/uploads/../bundles/web.tgz", &paths),
            None
        );
        for (path, name) in [
            ("/bundles/web-4f2a9c.tgz", Some("web-4f2a9c")),
            ("/bundles/web.v1.tgz", Some("web.v1")),
            ("/bundles/x.tgz.tgz", Some("x.tgz")),
            ("/bundles/", None),
            ("/bundles", None),
            ("/bundles/.tgz", None),
            ("/bundles/web", None),
            ("/bundles/web.tgz/", None),
            ("/bundles/../x.tgz", None),
            ("/bundles/..tgz", None),
            ("/bundles/a/b.tgz", None),
            ("/bundles/a%2fb.tgz", None),
            ("/bundles/%2e%2e.tgz", None),
            ("//bundles/web.tgz", None),
            ("/bundles//web.tgz", None),
            ("/bundles/Web.tgz", None),
            ("/other/web.tgz", None),
        ] {
            let expected = name.map(|name| RequestTarget::Content(name.parse().unwrap()));
            assert_eq!(RequestTarget::of(path, &paths), expected, "{path}");
        }
    }

    #[test]
    fn headers_select_bytes() {
        let digest = Digest::of(b"archive");
        let tag = entity_tag(&digest);
        let range = |first, last| ByteSelection::Range { first, last };
        for (name, value, selected) in [
            ("range", "bytes=0-9", range(0, 9)),
            ("range", "bytes=5-", range(5, 99)),
            ("range", "bytes=-10", range(90, 99)),
            ("range", "bytes=99-99", range(99, 99)),
            ("range", "bytes=90-200", range(90, 99)),
            ("range", "bytes=100-", ByteSelection::OutOfRange),
            ("range", "bytes=9-5", ByteSelection::OutOfRange),
            ("range", "bytes=0-9,20-29", ByteSelection::All),
            ("range", "lines=0-9", ByteSelection::All),
            ("range", "bytes=a-b", ByteSelection::All),
            ("if-none-match", &tag, ByteSelection::NotModified),
            ("if-none-match", "*", ByteSelection::NotModified),
            ("if-none-match", "\"sha256:00\"", ByteSelection::All),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(
                ByteSelection::of(&headers, 100, &digest),
                selected,
                "{name}: {value}"
            );
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, "bytes=5-".parse().unwrap());
        headers.insert(header::IF_RANGE, tag.parse().unwrap());
        assert_eq!(ByteSelection::of(&headers, 100, &digest), range(5, 99));
        headers.insert(header::IF_RANGE, "\"sha256:00\"".parse().unwrap());
        assert_eq!(
            ByteSelection::of(&headers, 100, &digest),
            ByteSelection::All
        );
    }
}
