//! Rules for the URL of an http source. A URL is rejected if an HTTP client could find another host
//! in the URL than these rules.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum length of a URL, in bytes.
const LONGEST_URL: usize = 2048;
/// Maximum length of a host name, in bytes.
const LONGEST_HOST: usize = 253;

/// Checks a URL. The error text continues a sentence that begins with the name of the field. It
/// never contains the URL, because the URL can contain a password.
pub(super) fn check_url(url: &str) -> Result<(), &'static str> {
    if url.len() > LONGEST_URL {
        return Err("is longer than 2048 bytes");
    }
    let allowed = |byte: u8| byte.is_ascii_graphic() && !br#""<>\^`{|}"#.contains(&byte);
    if !url.bytes().all(allowed) {
        return Err("has a character that a URL cannot have unless it is percent-encoded");
    }
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let rest = rest.ok_or("is not an http or https URL")?;
    if rest.contains('#') {
        return Err("has a fragment, which clients never send");
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("has credentials; store them in a Secret, and name it in auth.secret");
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if port.is_some_and(|port| !is_port(port)) {
        return Err("has an invalid port");
    }
    if is_host(host) {
        Ok(())
    } else {
        Err("has an invalid host")
    }
}

fn is_port(port: &str) -> bool {
    port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Returns `true` for DNS names and for addresses in their usual notation. Returns `false` for
/// `0x7f.1` and `2130706433`, which URL parsers accept as addresses.
fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']');
        return inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    if last.starts_with(|first: char| first.is_ascii_digit()) {
        return host.parse::<Ipv4Addr>().is_ok();
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    host.len() <= LONGEST_HOST && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_urls_of_names_and_addresses() {
        for url in [
            "https://files.example.com/web.tgz",
            "https://files.example.com:8443/a/b?version=1&signature=%2B",
            "http://files/web.tgz",
            "https://192.0.2.1/web.tgz",
            "https://[2001:db8::1]:8443/web.tgz",
            "https://xn--bcher-kva.example/web.tgz",
            "https://files.example.com",
        ] {
            assert_eq!(check_url(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn rejects_urls_that_clients_could_interpret_differently() {
        let long = format!("https://files.example.com/{}", "a".repeat(2048));
        let name = format!("https://{}/", "a.".repeat(127) + "example");
        for (url, expected) in [
            ("file:///etc/passwd", "is not an http or https URL"),
            ("HTTPS://files.example.com/a", "is not an http or https URL"),
            ("https:/files.example.com/a", "is not an http or https URL"),
            ("files.example.com/a", "is not an http or https URL"),
            ("", "is not an http or https URL"),
            ("https://ana:s3cret@files.example.com/a", "has credentials"),
            ("https://files.example.com@127.0.0.1/a", "has credentials"),
            ("https://files.example.com/a#b", "has a fragment"),
            ("https://files.example.com\\@127.0.0.1/a", "percent-encoded"),
            ("https://files.example.com/a b", "percent-encoded"),
            ("https://files.example.com/a\tb", "percent-encoded"),
            ("https://f\u{ef}les.example.com/a", "percent-encoded"),
            ("https:///a", "an invalid host"),
            ("https://127.1/a", "an invalid host"),
            ("https://0x7f.0.0.1/a", "an invalid host"),
            ("https://0x7f000001/a", "an invalid host"),
            ("https://2130706433/a", "an invalid host"),
            ("https://0177.0.0.1/a", "an invalid host"),
            ("https://[::1/a", "an invalid host"),
            ("https://[fe80::1%25eth0]/a", "an invalid host"),
            ("https://%31%32%37.0.0.1/a", "an invalid host"),
            ("https://files..example.com/a", "an invalid host"),
            ("https://-files.example.com/a", "an invalid host"),
            ("https://files.example.com:/a", "an invalid port"),
            ("https://files.example.com:0/a", "an invalid port"),
            ("https://files.example.com:70000/a", "an invalid port"),
            ("https://files.example.com:+443/a", "an invalid port"),
            (&long, "is longer than 2048 bytes"),
            (&name, "an invalid host"),
        ] {
            let why = check_url(url).unwrap_err();
            assert!(why.contains(expected), "{url}: {why}");
        }
    }
}
