//! Names of generated objects.

/// Maximum length of a generated name, in bytes.
const MAX_NAME: usize = 63;

/// Returns `BASE-SUFFIX`. A long base is cut, so that the name has at most 63 characters.
pub(super) fn with_suffix(base: &str, suffix: &str) -> String {
    let longest = MAX_NAME.saturating_sub(suffix.len() + 1);
    let base: String = base.chars().take(longest).collect();
    format!("{base}-{suffix}")
}

/// Returns the name of the Service for the webhooks of a Deployment.
pub(super) fn service(deployment: &str) -> String {
    with_suffix(&deployment.replace('.', "-"), "service")
}

/// Returns the name of the Secret with the certificate of a Service.
pub(super) fn certificate(service: &str) -> String {
    with_suffix(service, "cert")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_before_the_suffix() {
        assert_eq!(service("cache.operator"), "cache-operator-service");
        let long = service(&"d".repeat(80));
        assert_eq!(long, format!("{}-service", "d".repeat(55)));
        assert_eq!(certificate(&long), format!("{}-cert", &long[..58]));
    }
}
