//! Errors in patterns, with a suggestion for the correct pattern.

use super::{DOCKER_HUB, canonical_pattern, canonical_registry, example};

/// Maximum length of a pattern, in characters.
const LONGEST: usize = 512;
/// Registries whose host names users often write without the last label, such as `ghcr` for
/// `ghcr.io`.
const SHORT: [&str; 3] = ["ghcr", "quay", "gcr"];

/// Returns the error in a pattern, with an optional suggestion; `None` if the pattern is valid. A
/// pattern is invalid if its syntax is wrong, if it matches no reference, or if other tools
/// interpret it differently.
pub fn problem(pattern: &str) -> Option<String> {
    let why = fault(pattern)?;
    if pattern.is_empty() || pattern.len() > LONGEST {
        return Some(why);
    }
    Some(match corrected_pattern(pattern) {
        Some(meant) => format!("`{pattern}` {why} (did you mean `{meant}`?)"),
        None => format!("`{pattern}` {why}"),
    })
}

fn fault(pattern: &str) -> Option<String> {
    if pattern.is_empty() {
        return Some("an empty pattern matches nothing".to_owned());
    }
    if pattern.len() > LONGEST {
        return Some(format!("it is longer than {LONGEST} characters"));
    }
    if pattern.contains("://") {
        return Some("begins with a scheme; write REGISTRY/REPOSITORY".to_owned());
    }
    if pattern.contains('@') {
        return Some(
            "names a digest; patterns match the repository, never the tag or digest".to_owned(),
        );
    }
    if pattern.contains("***") {
        return Some("has three stars in a row".to_owned());
    }
    if pattern == "*/*" {
        return Some(
            "matches Docker Hub in policy-controller, but any registry here, so it is rejected"
                .to_owned(),
        );
    }
    let (registry, repository) = pattern.split_once('/').unwrap_or((pattern, ""));
    let has_repository = pattern.contains('/') || pattern.contains("**");
    if !has_repository {
        return Some(
            "names no repository and so matches nothing; `**` matches everything".to_owned(),
        );
    }
    letters(registry, repository)
        .or_else(|| slashes(registry, repository))
        .or_else(|| example(pattern).is_none().then(|| no_reference(registry)))
}

/// Returns an error for characters that neither registries nor repositories can contain; `None` if
/// there are no such characters.
fn letters(registry: &str, repository: &str) -> Option<String> {
    let stray = |text: &str, allowed: fn(u8) -> bool| {
        text.chars()
            .find(|c| !u8::try_from(*c).is_ok_and(|b| b.is_ascii() && allowed(b)))
    };
    if let Some(c) = stray(registry, |b| {
        b.is_ascii_alphanumeric() || b".-:*[]".contains(&b)
    }) {
        return Some(format!("has {c:?} in the registry"));
    }
    if repository.contains(':') {
        return Some("names a tag; patterns match the repository, never the tag or digest".into());
    }
    stray(repository, |b| {
        b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-*/".contains(&b)
    })
    .map(|c| format!("has {c:?} in the repository; names of repositories do not allow it"))
}

fn slashes(registry: &str, repository: &str) -> Option<String> {
    if registry.is_empty() {
        return Some("begins with a slash and so matches nothing".into());
    }
    if repository.ends_with('/') || (repository.is_empty() && !registry.contains("**")) {
        return Some("ends in a slash and so matches nothing; end it in `/**`".into());
    }
    if repository.contains("//") || repository.starts_with('/') {
        return Some("has an empty component and so matches nothing".into());
    }
    None
}

fn no_reference(registry: &str) -> String {
    if !registry.contains(['.', ':', '*', '[']) {
        return format!(
            "matches no reference: `{registry}` is not a registry, which has a dot or a port, or is localhost"
        );
    }
    if registry.contains('[') && registry.contains('*') {
        return "matches no reference: an IPv6 address must be written in full, without `*`"
            .to_owned();
    }
    if canonical_registry(registry) == DOCKER_HUB {
        return "matches no reference: on Docker Hub, every repository has two components, and official images are library/NAME".to_owned();
    }
    "matches no reference: no valid registry and repository have this form".to_owned()
}

/// Returns the pattern with frequent errors corrected, if the result is valid.
fn corrected_pattern(pattern: &str) -> Option<String> {
    let text = pattern.split_once("://").map_or(pattern, |(_, rest)| rest);
    let text = text.split_once('@').map_or(text, |(name, _)| name);
    let mut text = text.to_owned();
    for (twice, once) in [("***", "**"), ("//", "/")] {
        while text.contains(twice) {
            text = text.replace(twice, once);
        }
    }
    let mut text = text.trim_start_matches('/').to_owned();
    if text.ends_with('/') {
        text.push_str("**");
    }
    let names_registry = |first: &str| first.contains(['.', ':']) || first == "localhost";
    let text = match text.split_once('/') {
        Some((first, rest)) => {
            let rest = without_tag(rest).to_ascii_lowercase();
            if names_registry(first) {
                format!("{first}/{rest}")
            } else if SHORT.contains(&first) {
                format!("{first}.io/{rest}")
            } else {
                format!("{DOCKER_HUB}/{}/{rest}", first.to_ascii_lowercase())
            }
        }
        None if names_registry(&text) => format!("{text}/**"),
        None => format!("{DOCKER_HUB}/{}", text.to_ascii_lowercase()),
    };
    let text = match text.split_once('/') {
        Some((registry, rest))
            if canonical_registry(registry) == DOCKER_HUB
                && !rest.contains('/')
                && !rest.contains("**") =>
        {
            format!("{DOCKER_HUB}/library/{rest}")
        }
        _ => text,
    };
    // A pattern with the same meaning as the original pattern is not suggested.
    let differs = canonical_pattern(&text) != canonical_pattern(pattern) || text == "docker.io/*/*";
    (differs && fault(&text).is_none()).then_some(text)
}

fn without_tag(repository: &str) -> &str {
    let last = repository.rfind('/').map_or(0, |slash| slash + 1);
    match repository[last..].find(':') {
        Some(colon) => &repository[..last + colon],
        None => repository,
    }
}
