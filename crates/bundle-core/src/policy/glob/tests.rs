use proptest::prelude::*;

use super::*;

#[test]
fn matches_names_by_pattern() {
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
fn host_with_equal_prefix_does_not_match() {
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
fn other_spelling_of_a_registry_still_matches() {
    for (pattern, name) in [
        ("registry.example.com/**", "Registry.EXAMPLE.com/web"),
        ("Registry.Example.com/**", "registry.example.com/web"),
        ("registry.example.com/**", "registry.example.com:443/web"),
        ("registry.example.com/**", "registry.example.com:80/web"),
        ("registry.example.com:80/**", "registry.example.com/web"),
        ("*.example.com:80/**", "registry.example.com/web"),
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
    // The same host with another port is another registry.
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
fn rejects_patterns_with_probable_mistakes() {
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
fn many_stars_match_quickly() {
    let pattern = format!("registry.example.com/{}b", "*a".repeat(200));
    let name = format!("registry.example.com/{}", "a".repeat(250));
    assert!(!matches(&pattern, &name));
}

#[test]
fn rejects_patterns_without_match_and_suggests_a_correction() {
    for (pattern, meant) in [
        // Official images of Docker Hub have two components.
        ("docker.io/*", "docker.io/library/*"),
        ("index.docker.io/*", "docker.io/library/*"),
        ("docker.io/w*", "docker.io/library/w*"),
        // Patterns without a registry.
        ("*", "docker.io/library/*"),
        ("*/*", "docker.io/*/*"),
        ("web", "docker.io/library/web"),
        ("web*", "docker.io/library/web*"),
        ("team/web", "docker.io/team/web"),
        ("team/**", "docker.io/team/**"),
        ("team/web**", "docker.io/team/web**"),
        ("ghcr/**", "ghcr.io/**"),
        ("quay/team/*", "quay.io/team/*"),
        // Patterns with a tag, a digest or a scheme.
        ("registry.example.com/web:1.*", "registry.example.com/web"),
        ("registry.example.com/*:latest", "registry.example.com/*"),
        (
            "registry.example.com/web@sha256:*",
            "registry.example.com/web",
        ),
        (
            "registry.example.com:5000/web:1.4.0@sha256:abc",
            "registry.example.com:5000/web",
        ),
        ("https://registry.example.com/**", "registry.example.com/**"),
        // Patterns with missing or superfluous slashes.
        ("registry.example.com", "registry.example.com/**"),
        ("registry.example.com/", "registry.example.com/**"),
        ("registry.example.com/team/", "registry.example.com/team/**"),
        ("registry.example.com//web", "registry.example.com/web"),
        ("/team/web", "docker.io/team/web"),
        // Patterns with invalid characters.
        (
            "registry.example.com/Team/**",
            "registry.example.com/team/**",
        ),
        ("registry.example.com/***", "registry.example.com/**"),
    ] {
        let found = problem(pattern).unwrap_or_default();
        let offered = format!(" (did you mean `{meant}`?)");
        assert!(found.ends_with(&offered), "{pattern}: {found}");
        assert_eq!(problem(meant), None, "{meant}");
    }
}

#[test]
fn rejects_patterns_that_match_no_reference() {
    for pattern in [
        // Patterns with registries that no reference has.
        "-*/web",
        "registry..*/web",
        "*-.example.com/**",
        "registry.example.com:0/**",
        "registry.example.com:99999/**",
        "*.example.com:0*1/**",
        "*.256/**",
        "0x7f.*.1/**",
        "[*]:5000/**",
        "[fd00:*]/**",
        "*]/web",
        "registry.example.com:**:5000/web",
        "registry.example.com:port/web",
        // Patterns with repositories that no reference has.
        "registry.example.com/team/*-",
        "registry.example.com/.team/**",
        "registry.example.com/team/_*",
        "registry.example.com/a..*",
        "registry.example.com/a___*",
        "registry.example.com/a._*b",
        "registry.example.com/**/",
        "registry.example.com/**//web",
    ] {
        assert!(problem(pattern).is_some(), "{pattern}");
    }
    let long = format!("registry.example.com/{}/*", "a".repeat(255));
    assert!(problem(&long).is_some());
}

#[test]
fn stars_in_the_registry_cover_every_spelling_of_it() {
    for pattern in [
        "index.docker.**",
        "inde**",
        "*.docker.io/**",
        "*docker.io/**",
        "registry*/**",
        "*:443/**",
        "*.docker.io:443/library/*",
        "*/**",
    ] {
        assert_eq!(problem(pattern), None, "{pattern}");
        for name in ["docker.io/library/web", "index.docker.io/web"] {
            assert!(matches(pattern, name), "{pattern} on {name}");
        }
    }
    assert!(matches("*:443/**", "registry.example.com/web"));
    assert!(matches("*.example.com:*/**", "registry.example.com/web"));
    assert!(!matches("*:443/**", "registry.example.com:5000/web"));
    assert!(!matches(
        "*.example.com/**",
        "registry.example.com:5000/web"
    ));
}

/// Generates names as in references, with labels, addresses, ports and components at the limits of
/// the grammar.
fn names() -> impl Strategy<Value = String> {
    let registry = prop_oneof![
        "[a-z0-9]([a-z0-9-]{0,2}[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]{0,2}[a-z0-9])?){1,3}",
        "(1|0|25|255|256)(\\.(1|0|25|255|256)){3}",
        Just("localhost".to_owned()),
        Just("docker.io".to_owned()),
        Just("Registry-1.docker.io".to_owned()),
        Just("[fd00::1]".to_owned()),
    ];
    let port = prop_oneof![Just(String::new()), Just(":443".to_owned()), ":[0-9]{1,5}"];
    let component = "[a-z0-9]{1,2}((\\.|_|__|-{1,2})[a-z0-9]{1,2}){0,1}";
    let repository = prop::collection::vec(component, 1..3).prop_map(|parts| parts.join("/"));
    (registry, port, repository).prop_map(|(host, port, path)| format!("{host}{port}/{path}"))
}

/// Generates a name, and a pattern in which stars replace parts of the name.
fn starred() -> impl Strategy<Value = (String, String)> {
    let cuts = prop::collection::vec((any::<usize>(), 0_usize..6, any::<bool>()), 0..3);
    (names(), cuts).prop_map(|(name, cuts)| {
        let mut pattern = name.clone();
        for (at, length, double) in cuts {
            let from = at % (pattern.len() + 1);
            let to = (from + length).min(pattern.len());
            pattern.replace_range(from..to, if double { "**" } else { "*" });
        }
        (pattern, name)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// For every valid pattern, `example` returns a valid reference that the pattern matches.
    #[test]
    fn accepted_patterns_match_their_witness(
        pattern in prop_oneof![
            "[a-zA-Z0-9.:/*_\\[\\]-]{0,16}",
            "[a-z*.]{1,9}(:[0-9*]{1,4})?/[a-z*/._-]{1,9}",
            starred().prop_map(|(pattern, _)| pattern),
        ]
    ) {
        if problem(&pattern).is_none() {
            let example = example(&pattern);
            prop_assert!(example.is_some(), "{pattern}");
            let reference: Reference = format!("{}:1", example.unwrap_or_default()).parse().unwrap();
            prop_assert!(matches(&pattern, &reference.name()), "{pattern} on {reference}");
        }
    }

    /// Every pattern that matches a reference has an example, so no valid pattern is rejected.
    /// Stars in the address of an IPv6 registry are invalid.
    #[test]
    fn patterns_that_match_a_reference_have_a_witness((pattern, name) in starred()) {
        let stars_in_address = name.starts_with('[') && !pattern.starts_with("[fd00::1]");
        if let Ok(reference) = format!("{name}:1").parse::<Reference>()
            && !stars_in_address
            && matches(&pattern, &reference.name())
        {
            prop_assert!(example(&pattern).is_some(), "{pattern} on {name}");
        }
    }

    /// Suggested patterns are valid.
    #[test]
    fn suggested_patterns_are_valid(pattern in "[a-zA-Z0-9.:/*@-]{0,16}") {
        if let Some(offered) = problem(&pattern)
            .as_deref()
            .and_then(|text| text.strip_suffix("`?"))
            .and_then(|text| text.rsplit_once('`'))
            .map(|(_, offered)| offered)
        {
            prop_assert_eq!(problem(offered), None);
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures the rule")]
fn longest_patterns_are_checked_quickly() {
    let began = std::time::Instant::now();
    for piece in ["*a", "**1", "*.", "1*.", "*:1"] {
        let pattern: String = piece.repeat(512 / piece.len());
        let _ = problem(&pattern);
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(2));
}
