//! Diagnostic codes of references and digests.

area! {
    UNREADABLE = "BUNDLE-REFERENCE-001", Usage, "invalid image reference", "A reference consists of a registry, a repository and a tag or digest: registry.example.com/team/web:1.4.0. There is no default registry.";
    BAD_DIGEST = "BUNDLE-REFERENCE-002", Usage, "invalid digest", "A digest is sha256: followed by 64 lower-case hexadecimal digits.";
}
