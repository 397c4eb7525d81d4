//! Which names Kubernetes takes.
//! Not here: names of our own kinds, which are shorter (bundle-api).

/// The longest name of an object, in bytes.
const MAX_SUBDOMAIN: usize = 253;
/// The longest DNS label, in bytes.
const MAX_LABEL: usize = 63;

/// Whether this is a DNS label as RFC 1123 has it: 1 to 63 of `a-z`, `0-9` and `-`, neither first nor last a `-`.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && is_label_of_any_length(text)
}

/// Whether this is a DNS subdomain as RFC 1123 has it: labels with dots between, at most 253 characters together.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= MAX_SUBDOMAIN && text.split('.').all(is_label_of_any_length)
}

fn is_label_of_any_length(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Why an object of this group and kind cannot have this name, if so.
pub(super) fn trouble(group: &str, kind: &str, name: &str) -> Option<&'static str> {
    if name.len() > MAX_SUBDOMAIN {
        return Some("it is longer than 253 characters");
    }
    // The names of these are any that fit into a URL: `system:node`, `fd00::1`.
    let free = group == "rbac.authorization.k8s.io"
        || (group == "networking.k8s.io" && kind == "IPAddress");
    if free {
        let fits = !matches!(name, "." | "..") && !name.contains(['/', '%']);
        return (!fits).then_some("it must be neither `.` nor `..`, and hold neither `/` nor `%`");
    }
    let fits = if group.is_empty() && kind == "Namespace" {
        is_dns_label(name)
    } else {
        is_dns_subdomain(name)
    };
    (!fits).then_some(
        "it may hold lower-case letters, digits, `-` and (but in namespaces) `.`, and starts and ends with a letter or digit",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_api_server() {
        let long = "a".repeat(254);
        for (group, kind, name, fine) in [
            ("", "ConfigMap", "kube-root-ca.crt", true),
            ("", "ConfigMap", "Web", false),
            ("", "ConfigMap", "a_b", false),
            ("", "ConfigMap", "a..b", false),
            ("", "ConfigMap", "-a", false),
            ("", "ConfigMap", &long, false),
            ("", "ConfigMap", &long[1..], true),
            ("", "Namespace", "team-a", true),
            ("", "Namespace", "team.a", false),
            ("", "Namespace", &long[..64], false),
            (
                "rbac.authorization.k8s.io",
                "ClusterRole",
                "system:Node_1",
                true,
            ),
            ("rbac.authorization.k8s.io", "ClusterRole", "a/b", false),
            ("rbac.authorization.k8s.io", "Role", "..", false),
            ("networking.k8s.io", "IPAddress", "fd00::1", true),
            ("apps", "Deployment", "a:b", false),
        ] {
            assert_eq!(trouble(group, kind, name).is_none(), fine, "{kind} {name}");
        }
    }
}
