//! Parser of the headers `WWW-Authenticate` and `Link`.

/// Authentication that a registry requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::registry) enum Challenge {
    /// User name and password.
    Basic,
    /// A token from a token service.
    Bearer {
        realm: String,
        service: Option<String>,
        scope: Option<String>,
        /// Reason why the sent token was rejected: `invalid_token`, `insufficient_scope`.
        error: Option<String>,
    },
}

impl Challenge {
    /// Returns the size of the texts of the challenge, in bytes.
    pub(in crate::registry) fn bytes(&self) -> usize {
        match self {
            Self::Basic => 0,
            Self::Bearer {
                realm,
                service,
                scope,
                error,
            } => {
                let optional = [service, scope, error].into_iter().flatten();
                realm.len() + optional.map(String::len).sum::<usize>()
            }
        }
    }
}

/// Parses the header `WWW-Authenticate`. If the registry offers basic authentication and tokens,
/// tokens are used.
pub(in crate::registry) fn challenge(header: &str) -> Option<Challenge> {
    let mut found = None;
    let mut rest = header.trim_start();
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| c.is_whitespace() || c == ',')
            .unwrap_or(rest.len());
        let scheme = &rest[..end];
        let (parameters, after) = parameters(rest[end..].trim_start());
        rest = after;
        let value = |name: &str| {
            parameters
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.clone())
        };
        if scheme.eq_ignore_ascii_case("bearer") {
            if let Some(realm) = value("realm") {
                return Some(Challenge::Bearer {
                    realm,
                    service: value("service"),
                    scope: value("scope"),
                    error: value("error"),
                });
            }
        } else if scheme.eq_ignore_ascii_case("basic") {
            found = Some(Challenge::Basic);
        }
    }
    found
}

/// Parses `a=b, c="d"` up to the next scheme, which is a word without `=`.
fn parameters(mut text: &str) -> (Vec<(String, String)>, &str) {
    let mut found = Vec::new();
    loop {
        text = text.trim_start_matches([',', ' ', '\t']);
        let word = text
            .find(|c: char| c == '=' || c == ',' || c.is_whitespace())
            .unwrap_or(text.len());
        let Some(value) = text[word..].strip_prefix('=') else {
            return (found, text);
        };
        let name = text[..word].to_owned();
        let (value, after) = if let Some(quoted) = value.strip_prefix('"') {
            unquote(quoted)
        } else {
            let end = value
                .find(|c: char| c == ',' || c.is_whitespace())
                .unwrap_or(value.len());
            (value[..end].to_owned(), &value[end..])
        };
        found.push((name, value));
        text = after;
    }
}

fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

/// Returns the target of `Link: <…>; rel="next"`.
pub(in crate::registry) fn next_page(header: &str) -> Option<&str> {
    let (target, rest) = header.trim().strip_prefix('<')?.split_once('>')?;
    let next = rest.split(';').any(|parameter| {
        matches!(
            parameter.split(',').next().map(str::trim),
            Some(r#"rel="next""# | "rel=next")
        )
    });
    next.then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_challenges_of_common_registries() {
        let header = r#"Bearer realm="https://auth.example.com/token",service="registry.example.com",scope="repository:a/b:pull,push""#;
        assert_eq!(
            challenge(header),
            Some(Challenge::Bearer {
                realm: "https://auth.example.com/token".into(),
                service: Some("registry.example.com".into()),
                scope: Some("repository:a/b:pull,push".into()),
                error: None,
            })
        );
        assert_eq!(challenge(r#"Basic realm="x""#), Some(Challenge::Basic));
        assert_eq!(challenge("Basic"), Some(Challenge::Basic));
        let both = r#"Basic realm="a, b=c", bearer realm=https://t.example.com"#;
        assert!(
            matches!(challenge(both), Some(Challenge::Bearer { realm, .. }) if realm == "https://t.example.com")
        );
        for header in [
            "",
            ",",
            "Negotiate",
            "Bearer",
            "Bearer realm",
            r#"Bearer x="y"#,
        ] {
            assert_eq!(challenge(header), None, "{header}");
        }
    }

    #[test]
    fn reads_next_page_of_link_headers() {
        assert_eq!(
            next_page(r#"</v2/a/referrers/x?n=2>; rel="next""#),
            Some("/v2/a/referrers/x?n=2")
        );
        assert_eq!(next_page(r#"</v2/a>; rel="prev""#), None);
        assert_eq!(next_page("nothing"), None);
    }
}
