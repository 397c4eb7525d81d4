//! Warnings in responses of the API server.

use http::HeaderMap;

/// Returns the texts of the `Warning` headers of a response.
pub fn warnings(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let headers = headers.get_all(http::header::WARNING).iter();
    // The header texts are UTF-8, and `to_str` accepts only ASCII.
    headers.map(|header| text(&String::from_utf8_lossy(header.as_bytes())))
}

/// Returns the text of one header: `299 - "text"`.
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
}
