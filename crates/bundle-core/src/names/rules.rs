//! Which texts the API server accepts as names: the rules of `k8s.io/apimachinery`, package `pkg/util/validation`.

/// The longest name of an object, in bytes (`DNS1123SubdomainMaxLength`).
pub(super) const MAX_SUBDOMAIN: usize = 253;
/// The longest DNS label, in bytes (`DNS1123LabelMaxLength`).
pub(super) const MAX_LABEL: usize = 63;

/// Whether this is a DNS label as RFC 1123 has it (`IsDNS1123Label`): 1 to 63 of `a-z`, `0-9` and `-`, neither first nor last a `-`.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_label_of_any_length(text)
}

/// Whether this is a DNS subdomain as RFC 1123 has it (`IsDNS1123Subdomain`): labels with dots between, at most 253 characters together.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(is_label_of_any_length)
}

/// Whether this is a name of RBAC that is one segment of a URL path as it stands.
///
/// `IsValidPathSegmentName` (`pkg/api/validation/path`) forbids `.`, `..`, `/` and `%`. Its other characters include some that end a path (`?`, `#`)
/// or a clause of a selector (`,`, `=`), and some that a shell reads. Of those, none is accepted here.
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
