//! Patterns over `registry/repository`: `*` within one component, `**` across them, and one spelling of each registry.
//! Not here: which policy a pattern belongs to.
//!
//! A registry has many spellings (upper case, its default port, Docker Hub's aliases). If each were another name, content could be taken past a
//! policy by writing its registry differently, so both sides are brought to one spelling first.

use std::net::Ipv6Addr;

/// Whether `pattern` (checked by [`problem`]) matches `name`, which is `registry/repository` without tag and digest.
pub fn matches(pattern: &str, name: &str) -> bool {
    let pattern = canonical_pattern(pattern);
    let name = canonical_name(name);
    walk(pattern.as_bytes(), name.as_bytes())
}

/// Why a pattern cannot be what its author meant, if it cannot: it is not of our syntax, or it could never match anything.
pub fn problem(pattern: &str) -> Option<String> {
    let says = |why: &str| Some(format!("`{pattern}` {why}"));
    if pattern.is_empty() {
        return Some("an empty pattern matches nothing".to_owned());
    }
    if pattern.len() > 512 {
        return Some("it is longer than 512 characters".to_owned());
    }
    if pattern.contains("://") {
        return says("begins with a scheme; write REGISTRY/REPOSITORY");
    }
    if pattern.contains('@') {
        return says("names a digest; patterns are on the repository, never on tag or digest");
    }
    if pattern.contains("***") {
        return says("has three stars in a row");
    }
    if pattern == "**" {
        return None;
    }
    let Some((registry, repository)) = pattern.split_once('/') else {
        if pattern.contains("**") {
            return check(pattern, "").and_then(|why| says(&why));
        }
        return says("names no repository and so matches nothing; `**` matches everything");
    };
    check(registry, repository).and_then(|why| says(&why))
}

fn check(registry: &str, repository: &str) -> Option<String> {
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
        return Some("names a tag; patterns are on the repository, never on tag or digest".into());
    }
    if let Some(c) = stray(repository, |b| {
        b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-*/".contains(&b)
    }) {
        return Some(format!(
            "has {c:?} in the repository, which no repository has"
        ));
    }
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

/// `registry/repository` with the registry in its one spelling.
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

/// As [`canonical_name`], for a pattern: an implied `library/` is added only where the repository has no stars.
fn canonical_pattern(pattern: &str) -> String {
    match pattern.split_once('/') {
        None => pattern.to_ascii_lowercase(),
        Some((registry, repository)) => {
            let registry = canonical_registry(registry);
            if registry == DOCKER_HUB && !repository.contains(['/', '*']) {
                return format!("{registry}/library/{repository}");
            }
            format!("{registry}/{repository}")
        }
    }
}

const DOCKER_HUB: &str = "docker.io";

fn canonical_registry(registry: &str) -> String {
    let lower = registry.to_ascii_lowercase();
    let (host, port) = match lower.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (lower.as_str(), None),
    };
    let host = match host {
        "index.docker.io" | "registry-1.docker.io" | "registry.hub.docker.com" => {
            DOCKER_HUB.to_owned()
        }
        other => other
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .and_then(|address| address.parse::<Ipv6Addr>().ok())
            .map_or_else(
                || other.to_owned(),
                |address| match address.to_ipv4_mapped() {
                    // Whoever connects there arrives at the shorter one.
                    Some(address) => address.to_string(),
                    None => format!("[{address}]"),
                },
            ),
    };
    match port.map(|port| (port, port.parse::<u16>())) {
        None | Some((_, Ok(443))) => host,
        Some((_, Ok(port))) => format!("{host}:{port}"),
        Some((text, Err(_))) => format!("{host}:{text}"),
    }
}

/// Matches in time proportional to the product of the lengths, whatever the number of stars.
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
mod tests {
    use super::*;

    #[test]
    fn matches_what_it_says() {
        for (pattern, name, expected) in [
            (
                "registry.example.com/team/**",
                "registry.example.com/team/web",
                true,
            ),
            (
                "registry.example.com/team/**",
                "registry.example.com/team/a/b",
                true,
            ),
            (
                "registry.example.com/team/**",
                "registry.example.com/team",
                false,
            ),
            (
                "registry.example.com/team/**",
                "registry.example.com/teams/web",
                false,
            ),
            (
                "registry.example.com/team/*",
                "registry.example.com/team/web",
                true,
            ),
            (
                "registry.example.com/team/*",
                "registry.example.com/team/a/b",
                false,
            ),
            (
                "registry.example.com/*/web",
                "registry.example.com/team/web",
                true,
            ),
            (
                "registry.example.com/*/web",
                "registry.example.com/a/b/web",
                false,
            ),
            (
                "registry.example.com/**/web",
                "registry.example.com/a/b/web",
                true,
            ),
            (
                "registry.example.com/team/web",
                "registry.example.com/team/web",
                true,
            ),
            (
                "registry.example.com/team/web",
                "registry.example.com/team/web2",
                false,
            ),
            (
                "registry.example.com/team/w*b",
                "registry.example.com/team/web",
                true,
            ),
            ("*.example.com/**", "a.example.com/x/y", true),
            ("*.example.com/**", "example.com/x", false),
            ("*.example.com/**", "a.example.com:5000/x", false),
            ("**", "registry.example.com/team/web", true),
            ("**/web", "registry.example.com/team/web", true),
            (
                "registry.example.com**",
                "registry.example.com/team/web",
                true,
            ),
        ] {
            assert_eq!(problem(pattern), None);
            assert_eq!(matches(pattern, name), expected, "{pattern} on {name}");
        }
    }

    #[test]
    fn a_host_that_only_begins_the_same_is_another_one() {
        let pattern = "registry.example.com/**";
        assert!(!matches(pattern, "registry.example.com.evil.com/team/web"));
        assert!(!matches(pattern, "evil.com/registry.example.com/team/web"));
        assert!(!matches(pattern, "xregistry.example.com/team/web"));
        assert!(!matches(
            "registry.example.com/**",
            "registryxexample.com/web"
        ));
    }

    #[test]
    fn another_spelling_of_a_registry_does_not_get_past_a_policy() {
        for (pattern, name) in [
            ("registry.example.com/**", "Registry.EXAMPLE.com/web"),
            ("Registry.Example.com/**", "registry.example.com/web"),
            ("registry.example.com/**", "registry.example.com:443/web"),
            ("registry.example.com:443/**", "registry.example.com/web"),
            (
                "registry.example.com:5000/**",
                "registry.example.com:05000/web",
            ),
            ("docker.io/team/**", "index.docker.io/team/web"),
            ("docker.io/team/**", "registry-1.docker.io/team/web"),
            ("docker.io/library/**", "docker.io/web"),
            ("docker.io/web", "index.docker.io/library/web"),
            ("[::1]:5000/**", "[0:0:0:0:0:0:0:1]:5000/web"),
            ("10.0.0.1:5000/**", "[::ffff:10.0.0.1]:5000/web"),
            ("[::ffff:a00:1]:5000/**", "10.0.0.1:5000/web"),
        ] {
            assert!(matches(pattern, name), "{pattern} on {name}");
        }
        // Another port is another registry.
        assert!(!matches(
            "registry.example.com/**",
            "registry.example.com:5000/web"
        ));
        assert!(!matches(
            "registry.example.com:5000/**",
            "registry.example.com/web"
        ));
    }

    #[test]
    fn refuses_patterns_that_could_only_surprise() {
        for (pattern, why) in [
            ("", "empty"),
            ("*", "matches everything"),
            ("registry.example.com", "names no repository"),
            ("registry.example.com/", "ends in a slash"),
            ("registry.example.com/team/", "ends in a slash"),
            ("registry.example.com//web", "empty component"),
            ("/team/web", "begins with a slash"),
            ("registry.example.com/web:1.*", "tag"),
            ("registry.example.com/web@sha256:*", "digest"),
            ("https://registry.example.com/**", "scheme"),
            ("registry.example.com/Team/**", "'T'"),
            ("registry.example.com/te?m/**", "'?'"),
            ("registry.example.com/{a,b}", "'{'"),
            ("registry.exаmple.com/**", "'а'"),
            ("registry.example.com/ web", "' '"),
            ("registry.example.com/***", "three stars"),
        ] {
            let found = problem(pattern).unwrap_or_default();
            assert!(found.contains(why), "{pattern}: {found}");
        }
    }

    #[test]
    fn stars_without_end_take_no_time() {
        let pattern = format!("registry.example.com/{}b", "*a".repeat(200));
        let name = format!("registry.example.com/{}", "a".repeat(250));
        assert!(!matches(&pattern, &name));
    }
}
