//! Tags of the form `sha256-HEX.KIND`. Older tools store attachments of a digest, such as
//! signatures, under these tags.

use bundle_core::reference::Digest;

/// Suffixes of the tags under which older versions of cosign store signatures, attestations and
/// SBOMs: `sha256-HEX.KIND`.
pub(crate) const LEGACY: [&str; 3] = ["sig", "att", "sbom"];

/// Returns the tag under which older versions of cosign store an attachment of this kind.
pub(crate) fn legacy_tag(digest: &Digest, kind: &str) -> String {
    format!("sha256-{}.{kind}", digest.hex())
}

/// Splits a tag of the form `sha256-HEX.KIND` into digest and kind. For the fallback tag
/// `sha256-HEX`, the kind is empty. Returns `None` for all other tags. `name` is the tag, or a text
/// that ends with the tag.
pub(crate) fn subject_of_tag(name: &str) -> Option<(Digest, &str)> {
    let tag = name.rsplit_once(':').map_or(name, |(_, tag)| tag);
    let rest = tag.strip_prefix("sha256-")?;
    let (hex, kind) = rest.split_once('.').unwrap_or((rest, ""));
    let digest = format!("sha256:{hex}").parse().ok()?;
    (kind.is_empty() && !rest.ends_with('.') || LEGACY.contains(&kind)).then_some((digest, kind))
}

/// Returns `true` if the name has the form `sha256-HEX` or `sha256-HEX.KIND`. Such a tag contains
/// signatures or other attachments of the image with the digest `sha256:HEX`.
pub(crate) fn is_attachment_tag(name: &str) -> bool {
    subject_of_tag(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_attachments_are_distinguished_from_other_tags() {
        let digest = Digest::of(b"x");
        let sig = legacy_tag(&digest, "sig");
        assert_eq!(subject_of_tag(&sig), Some((digest.clone(), "sig")));
        let list = format!("registry.example.com:5000/team/web:sha256-{}", digest.hex());
        assert_eq!(subject_of_tag(&list), Some((digest.clone(), "")));
        for name in [
            "1.4.0",
            "sha256-abc.sig",
            &format!("sha256-{}.exe", digest.hex()),
            &format!("sha256-{}.", digest.hex()),
            &format!("registry.example.com/web@{digest}"),
        ] {
            assert_eq!(subject_of_tag(name), None, "{name}");
        }
    }
}
