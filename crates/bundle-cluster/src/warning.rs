//! Warnings in responses of the API server.

use bundle_core::text::bounded;
use http::HeaderMap;

/// Largest number of warnings that are read from one response.
const MAX_WARNINGS: usize = 20;
/// Largest size of the warnings of one response together, in bytes. API servers send up to 4096
/// characters. Servers of aggregated APIs can send more.
const WARNINGS_LIMIT: usize = 16 << 10;

/// Returns the texts of the first `Warning` headers of a response.
pub fn warnings(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let headers = headers.get_all(http::header::WARNING).iter();
    headers
        .take(MAX_WARNINGS)
        .scan(WARNINGS_LIMIT, |left, header| {
            if *left == 0 {
                return None;
            }
            // The header texts are UTF-8, and `to_str` accepts only ASCII.
            let text = text(&String::from_utf8_lossy(header.as_bytes()));
            let shown = bounded(&text, *left);
            *left = left.saturating_sub(text.len());
            Some(shown)
        })
}

/// Returns the text in the value of a `Warning` header, which has the form `299 - "text"`.
fn text(header: &str) -> String {
    let quoted = header
        .split_once('"')
        .and_then(|(_, rest)| rest.rsplit_once('"'))
        .map_or(header, |(text, _)| text);
    quoted.replace("\\\"", "\"").replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_warnings_like_kubectl() {
        let mut headers = HeaderMap::new();
        for header in [
            r#"299 - "BUNDLE-X-001: class \"x\" is ünknown""#,
            "without quotes",
        ] {
            let header = http::HeaderValue::from_bytes(header.as_bytes()).unwrap();
            headers.append(http::header::WARNING, header);
        }
        assert_eq!(
            warnings(&headers).collect::<Vec<_>>(),
            [r#"BUNDLE-X-001: class "x" is ünknown"#, "without quotes"]
        );
    }

    #[test]
    fn number_and_size_of_warnings_are_bounded() {
        let read = |count: usize, size: usize| {
            let mut headers = HeaderMap::new();
            for number in 0..count {
                let header = format!("299 - \"{number:03}{}\"", "x".repeat(size));
                let header = http::HeaderValue::try_from(header).unwrap();
                headers.append(http::header::WARNING, header);
            }
            warnings(&headers).collect::<Vec<_>>()
        };
        assert_eq!(read(300, 10).len(), MAX_WARNINGS);
        let long = read(300, 4 << 10);
        assert_eq!(long.len(), 4);
        assert!(long[3].starts_with("003x") && long[3].ends_with('…'));
        let kept: usize = long.iter().map(String::len).sum();
        assert!(kept <= WARNINGS_LIMIT, "{kept}");
    }
}
