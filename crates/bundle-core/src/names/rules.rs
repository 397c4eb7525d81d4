//! Names that the API server accepts: the rules of `k8s.io/apimachinery`, package
//! `pkg/util/validation`.

/// Maximum length of an object name, in bytes (`DNS1123SubdomainMaxLength`).
pub(super) const MAX_SUBDOMAIN: usize = 253;
/// Maximum length of a DNS label, in bytes (`DNS1123LabelMaxLength`).
pub(super) const MAX_LABEL: usize = 63;

/// Returns `true` for a DNS label of RFC 1123 (`IsDNS1123Label`): 1 to 63 characters of `a-z`,
/// `0-9` and `-`. A label does not begin or end with `-`.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_label_of_any_length(text)
}

/// Returns `true` for a DNS subdomain of RFC 1123 (`IsDNS1123Subdomain`): labels separated by dots,
/// at most 253 characters.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(is_label_of_any_length)
}

/// Returns `true` for a name of an RBAC object that is one segment of a URL path without escapes.
///
/// `IsValidPathSegmentName` (`pkg/api/validation/path`) forbids `.`, `..`, `/` and `%`. It allows
/// characters that end a path (`?`, `#`) or a clause of a selector (`,`, `=`), and characters with
/// a meaning in a shell. This function rejects all these characters.
pub(super) fn is_path_segment(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_SUBDOMAIN
        && !matches!(text, "." | "..")
        && text.bytes().all(|byte| {
            byte.is_ascii_alphanumeric()
                || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':' | b'@' | b'+')
        })
}

fn is_label_of_any_length(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !text.starts_with('-')
        && !text.ends_with('-')
}
