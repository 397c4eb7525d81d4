//! Paths of files that every source of content rejects.

/// Paths that are not allowed in a bundle, each with a part of the reason for the rejection.
pub const UNSAFE_PATHS: [(&str, &str); 7] = [
    ("../up", "`..`"),
    ("a/../../up", "`..`"),
    ("/tmp/bundle-hostile", "absolute path"),
    ("C:/x", "absolute path"),
    ("a\x1b[2Jb", "control character"),
    ("a//b", "empty component"),
    ("a/./b", "empty component"),
];
