//! Diagnostic codes of references and digests.

area! {
    UNREADABLE = "BUNDLE-REFERENCE-001", Usage, "a reference cannot be read", "A reference names a registry, a repository and a tag or digest: registry.example.com/team/web:1.4.0. The registry is never guessed.";
    BAD_DIGEST = "BUNDLE-REFERENCE-002", Usage, "a digest cannot be read", "A digest is sha256: and 64 lower-case hexadecimal digits.";
}
