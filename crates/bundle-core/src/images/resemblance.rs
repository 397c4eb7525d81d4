//! Heuristics for texts that are probably images: by the name of the variable, argument or field,
//! or by the text itself.

use super::{Evidence, ImageReference};

/// Maximum length of a checked text, in bytes. References are shorter.
const LONGEST: usize = 512;

/// Returns the evidence that the value of an environment variable is an image; `None` without
/// evidence.
pub(super) fn variable(name: &str, value: &str) -> Option<Evidence> {
    judge(names_image(name, '_'), value)
}

/// Returns the evidence that the value of an argument is an image; `None` without evidence.
pub(super) fn argument(flag: &str, value: &str) -> Option<Evidence> {
    let flag = flag.trim_start_matches('-').replace(['-', '.'], "_");
    judge(names_image(&flag, '_') || names_image_camel(&flag), value)
}

/// Returns the evidence that the text of a field of an unknown kind is an image; `None` without
/// evidence.
pub(super) fn field(name: &str, value: &str) -> Option<Evidence> {
    // The name alone is not sufficient: in many kinds, a field `image` contains a name without
    // registry or tag, or the URL of a picture.
    if names_image_camel(name) && resembles_reference(value) {
        Some(Evidence::Name)
    } else {
        None
    }
}

fn judge(named: bool, value: &str) -> Option<Evidence> {
    if resembles_reference(value) {
        return Some(if named {
            Evidence::Name
        } else {
            Evidence::Look
        });
    }
    // The name already suggests an image. Therefore a tag, a digest or a path is sufficient in the
    // text.
    let more = value.contains(['/', ':', '@']);
    (named
        && more
        && value.len() <= LONGEST
        && !is_address(value)
        && ImageReference::parse(value).is_ok())
    .then_some(Evidence::Name)
}

/// Returns `true` if the text has a registry with dot or port, a path, and a tag or digest, and is
/// a valid reference.
fn resembles_reference(value: &str) -> bool {
    if value.len() > LONGEST || is_address(value) {
        return false;
    }
    ImageReference::parse(value).is_ok_and(|image| {
        let tag_or_digest = image.tag().is_some() || image.digest().is_some();
        // A text such as `example.com/path:8080` is often an address with a misplaced port, or a
        // pattern. Therefore a long number after the colon is not treated as a tag.
        let port = image.digest().is_none()
            && image
                .tag()
                .is_some_and(|tag| tag.len() > 3 && tag.bytes().all(|b| b.is_ascii_digit()));
        image.names_registry() && tag_or_digest && !port
    })
}

/// Returns `true` for a host with port but without path, such as `host:8080`.
fn is_address(value: &str) -> bool {
    !value.contains('/')
        && value
            .rsplit_once(':')
            .is_some_and(|(host, port)| port.parse::<u16>().is_ok() && host.contains('.'))
}

/// Returns `true` for names of variables such as `RELATED_IMAGE_PROXY`, `IMAGE` and
/// `SIDECAR_IMAGE`: the last word is `IMAGE`, or the name begins with `RELATED_IMAGE_`. Returns
/// `false` for `IMAGE_PULL_POLICY`.
fn names_image(name: &str, separator: char) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.split(separator);
    let last = words.next_back().unwrap_or_default();
    last == "image" || name.starts_with("related_image_")
}

/// Returns `true` for names of fields such as `image`, `imageName`, `sidecarImage` and
/// `dockerImage`.
fn names_image_camel(name: &str) -> bool {
    name == "image" || name == "imageName" || name.ends_with("Image")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_images_in_variables() {
        use Evidence::{Look, Name};
        for (name, value, expected) in [
            ("RELATED_IMAGE_PROXY", "quay.io/a/proxy:v1", Some(Name)),
            ("SIDECAR_IMAGE", "grafana/agent:v0.40", Some(Name)),
            ("IMAGE", "busybox:1.36", Some(Name)),
            ("SIDECAR_IMAGE", "busybox", None),
            ("IMAGE_PULL_POLICY", "Always", None),
            ("IMAGE_REGISTRY", "quay.io", None),
            ("COLLECTOR", "ghcr.io/o/collector:0.1.0", Some(Look)),
            ("COLLECTOR", "collector:0.1.0", None),
            ("LISTEN", "0.0.0.0:8080", None),
            ("MY_IMAGE", "db.example.com:5432", None),
            ("URL", "https://example.com/a:1", None),
            ("UPSTREAM", "example.com/path:8080", None),
            ("DSN", "user:pass@tcp(db.example.com:3306)/x", None),
            ("BUCKET", "s3.example.com/bucket/key", None),
            ("IMAGE", "$(BASE)/web:1", None),
            ("MODULE", "k8s.io/api/core", None),
        ] {
            assert_eq!(variable(name, value), expected, "{name}={value}");
        }
    }

    #[test]
    fn recognizes_images_in_arguments_and_fields() {
        use Evidence::{Look, Name};
        for (flag, value, expected) in [
            (
                "--acme-http01-solver-image",
                "quay.io/jetstack/cert-manager-acmesolver:v1.14.0",
                Some(Name),
            ),
            ("--sidecarImage", "grafana/agent:v1", Some(Name)),
            (
                "--prometheus-config-reloader",
                "quay.io/prometheus-operator/prometheus-config-reloader:v0.75.0",
                Some(Look),
            ),
            ("--metrics-bind-address", "0.0.0.0:8080", None),
            ("--image-pull-policy", "IfNotPresent", None),
        ] {
            assert_eq!(argument(flag, value), expected, "{flag}={value}");
        }
        assert_eq!(field("image", "quay.io/a/b:1"), Some(Name));
        assert_eq!(field("image", "logo.png"), None);
        assert_eq!(field("name", "quay.io/a/b:1"), None);
    }
}
