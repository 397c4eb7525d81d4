//! Patterns for `registry/repository`: `*` matches within one component, `**` across components.
//!
//! A registry has several spellings (upper case, its default port, Docker Hub's aliases). Pattern
//! and name are normalized to one spelling before they are compared, so that another spelling of a
//! registry does not bypass a policy.

mod example_search;
mod problem;

use crate::reference::{DOCKER_HUB, DOCKER_HUB_ALIASES, Reference, canonical_registry};

pub use problem::problem;

/// Returns `true` if `pattern` (checked by [`problem()`]) matches `name`, which is
/// `registry/repository` without tag and digest.
pub fn matches(pattern: &str, name: &str) -> bool {
    let name = canonical_name(name);
    let canonical = canonical_pattern(pattern);
    if !has_starred_registry(pattern) {
        return walk(canonical.as_bytes(), name.as_bytes());
    }
    spellings(&name)
        .iter()
        .any(|name| walk(canonical.as_bytes(), name.as_bytes()))
}

/// Returns a `registry/repository` that `pattern` matches; `None` if `pattern` matches no valid
/// reference.
pub fn example(pattern: &str) -> Option<String> {
    let found = example_search::shortest(&canonical_pattern(pattern))?;
    let reference: Reference = format!("{found}:tag").parse().ok()?;
    matches(pattern, &reference.name()).then_some(found)
}

/// Returns `true` if the pattern has `*` in its registry, so that the registry cannot be
/// normalized.
fn has_starred_registry(pattern: &str) -> bool {
    let registry = pattern.split_once('/').map_or(pattern, |(first, _)| first);
    registry.contains('*')
}

/// Returns the spellings of a canonical name, for the comparison with a pattern that has stars in
/// its registry. The result has each alias of Docker Hub, with and without the default ports.
/// Therefore `index.docker.**` matches Docker Hub.
fn spellings(name: &str) -> Vec<String> {
    let Some((registry, repository)) = name.split_once('/') else {
        return vec![name.to_owned()];
    };
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (registry, None),
    };
    let aliases: &[&str] = if host == DOCKER_HUB {
        &DOCKER_HUB_ALIASES
    } else {
        &[]
    };
    let hosts = std::iter::once(host).chain(aliases.iter().copied());
    hosts
        .flat_map(|host| match port {
            Some(port) => vec![format!("{host}:{port}/{repository}")],
            None => vec![
                format!("{host}/{repository}"),
                format!("{host}:443/{repository}"),
                format!("{host}:80/{repository}"),
            ],
        })
        .collect()
}

/// Returns `registry/repository` with the registry in its canonical spelling.
fn canonical_name(name: &str) -> String {
    match name.split_once('/') {
        None => name.to_owned(),
        Some((registry, repository)) => {
            let registry = canonical_registry(registry);
            if registry == DOCKER_HUB && !repository.contains('/') {
                return format!("{registry}/library/{repository}");
            }
            format!("{registry}/{repository}")
        }
    }
}

/// Like [`canonical_name`], for a pattern. If the repository has no stars, an implied `library/` is
/// added. If the registry has stars, a port is kept.
fn canonical_pattern(pattern: &str) -> String {
    match pattern.split_once('/') {
        None => canonical_starred(pattern),
        Some((registry, repository)) if registry.contains('*') => {
            format!("{}/{repository}", canonical_starred(registry))
        }
        Some((registry, repository)) => {
            let registry = canonical_registry(registry);
            if registry == DOCKER_HUB && !repository.contains(['/', '*']) {
                return format!("{registry}/library/{repository}");
            }
            format!("{registry}/{repository}")
        }
    }
}

/// Returns the canonical spelling of a registry with stars, in lower case. An IPv6 address must not
/// have stars.
fn canonical_starred(registry: &str) -> String {
    let lower = registry.to_ascii_lowercase();
    match lower.split_once(']') {
        Some((address, rest)) if !address.contains('*') => {
            format!("{}{rest}", canonical_registry(&format!("{address}]")))
        }
        _ => lower,
    }
}

/// Matches in time proportional to the product of the lengths, for any number of stars.
fn walk(pattern: &[u8], text: &[u8]) -> bool {
    // reachable[i]: pattern[..p] matches text[..i]
    let mut reachable = vec![false; text.len() + 1];
    reachable[0] = true;
    let mut p = 0;
    while p < pattern.len() {
        let double = pattern[p..].starts_with(b"**");
        let mut next = vec![false; text.len() + 1];
        if pattern[p] == b'*' {
            let mut open = false;
            for i in 0..=text.len() {
                if !double && i > 0 && text[i - 1] == b'/' {
                    open = false;
                }
                open |= reachable[i];
                next[i] = open;
            }
        } else {
            for i in 0..text.len() {
                next[i + 1] = reachable[i] && text[i] == pattern[p];
            }
        }
        reachable = next;
        p += if double { 2 } else { 1 };
    }
    reachable[text.len()]
}

#[cfg(test)]
mod policy_controller;
#[cfg(test)]
mod tests;
