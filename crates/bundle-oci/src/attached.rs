//! The tags by which older tools say that something belongs to a digest.
//! Not here: referrers (registry).

use bundle_core::reference::Digest;

/// What older versions of cosign keep beside a digest, each under a tag `sha256-HEX.KIND`.
pub(crate) const LEGACY: [&str; 3] = ["sig", "att", "sbom"];

/// The tag under which an older cosign keeps something of that kind.
pub(crate) fn legacy_tag(digest: &Digest, kind: &str) -> String {
    format!("sha256-{}.{kind}", digest.hex())
}

/// The digest that a name of that form belongs to, and the kind; empty for a list of referrers. The name is a tag, or ends in one.
pub(crate) fn attached_to(name: &str) -> Option<(Digest, &str)> {
    let tag = name.rsplit_once(':').map_or(name, |(_, tag)| tag);
    let rest = tag.strip_prefix("sha256-")?;
    let (hex, kind) = rest.split_once('.').unwrap_or((rest, ""));
    let digest = format!("sha256:{hex}").parse().ok()?;
    (kind.is_empty() && !rest.ends_with('.') || LEGACY.contains(&kind)).then_some((digest, kind))
}

/// Whether the name is of that form: then it is no image of its own.
pub(crate) fn is_attached(name: &str) -> bool {
    attached_to(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_belong_to_a_digest_are_told_from_others() {
        let digest = Digest::of(b"x");
        let sig = legacy_tag(&digest, "sig");
        assert_eq!(attached_to(&sig), Some((digest.clone(), "sig")));
        let list = format!("registry.example.com:5000/team/web:sha256-{}", digest.hex());
        assert_eq!(attached_to(&list), Some((digest.clone(), "")));
        for name in [
            "1.4.0",
            "sha256-abc.sig",
            &format!("sha256-{}.exe", digest.hex()),
            &format!("sha256-{}.", digest.hex()),
            &format!("registry.example.com/web@{digest}"),
        ] {
            assert_eq!(attached_to(name), None, "{name}");
        }
    }
}
