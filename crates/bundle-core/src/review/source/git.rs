//! Rules for the fields of a git source: its URL, its revision and its directory. The values become
//! arguments of the command git. Therefore values that git or ssh could interpret differently are
//! rejected.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum length of a URL, in bytes.
const LONGEST_URL: usize = 2048;
/// Maximum length of a host name, in bytes.
const LONGEST_HOST: usize = 253;
/// Maximum length of a branch or tag, in bytes. Git stores refs as file names.
const LONGEST_REF: usize = 244;
/// Maximum length of a directory, in bytes, as for the paths of a bundle.
const LONGEST_DIRECTORY: usize = 1024;
/// Number of hexadecimal digits of a commit.
const COMMIT_DIGITS: usize = 40;
/// User of an ssh URL without a user, as in RukPak.
const SSH_USER: &str = "git";
/// Directory if the source names no directory. With this directory, the root of the bundle is the
/// root of the repository.
pub(super) const DEFAULT_DIRECTORY: &str = "manifests";

/// Protocol of a git URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitTransport {
    /// HTTP over TLS.
    Https,
    /// SSH.
    Ssh,
}

impl GitTransport {
    /// Returns the default port, which a URL without a port uses.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Ssh => 22,
        }
    }
}

/// Host of a git URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitHost {
    /// DNS name, in lower case.
    Name(String),
    /// IP address.
    Address(IpAddr),
}

impl fmt::Display for GitHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Validated URL of a git repository: `https://…`, `ssh://…` or `user@host:path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitUrl {
    /// The URL as written.
    text: String,
    /// Host and port as written.
    authority: String,
    transport: GitTransport,
    user: Option<String>,
    host: GitHost,
    port: Option<u16>,
    /// The path as written, with its separator: `/` or `:`.
    path: String,
}

impl GitUrl {
    /// Parses a URL. The error text continues a sentence that begins with the name of the field. It
    /// never contains the URL, because the URL can contain a password.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > LONGEST_URL {
            return Err("is longer than 2048 bytes");
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains(['\\', '"', '\'']) {
            return Err("has a space, a quote, a backslash or a character that is not ASCII");
        }
        let (transport, rest, separator) = split_scheme(text).ok_or(OTHER_PROTOCOL)?;
        let at = rest.find(separator).ok_or("has no path")?;
        let (authority, path) = rest.split_at(at);
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, authority),
        };
        if user.is_some_and(|user| transport == GitTransport::Https || user.contains(':')) {
            return Err("contains credentials: set auth.secret instead");
        }
        if user.is_some_and(|user| !is_plain(user, LONGEST_HOST)) {
            return Err("has an invalid user");
        }
        let (host, port) = split_port(authority).ok_or("has an invalid port")?;
        let host = parse_host(host).ok_or("has an invalid host")?;
        if path.len() < 2 || path[1..].starts_with('-') {
            return Err("has no path");
        }
        if path.contains(['?', '#']) {
            return Err("has a query or a fragment");
        }
        Ok(Self {
            text: text.to_owned(),
            authority: authority.to_owned(),
            transport,
            user: user.map(str::to_owned),
            host,
            port,
            path: path.to_owned(),
        })
    }

    /// Returns the URL as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns host and port as written.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the protocol.
    pub fn transport(&self) -> GitTransport {
        self.transport
    }

    /// Returns the host.
    pub fn host(&self) -> &GitHost {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(self.transport.default_port())
    }

    /// Returns the URL for git, with the user that ssh needs, and with the parsed host.
    pub fn for_git(&self) -> String {
        let host = match &self.host {
            GitHost::Name(name) => name.clone(),
            GitHost::Address(IpAddr::V4(address)) => address.to_string(),
            GitHost::Address(IpAddr::V6(address)) => format!("[{address}]"),
        };
        let port = self
            .port
            .map_or_else(String::new, |port| format!(":{port}"));
        match self.transport {
            GitTransport::Https => format!("https://{host}{port}{}", self.path),
            GitTransport::Ssh => {
                let user = self.user.as_deref().unwrap_or(SSH_USER);
                // The path of `user@host:path` is relative to the home directory.
                let scheme = if self.path.starts_with('/') {
                    "ssh://"
                } else {
                    ""
                };
                format!("{scheme}{user}@{host}{port}{}", self.path)
            }
        }
    }
}

const OTHER_PROTOCOL: &str = "is neither an https nor an ssh URL";

/// Returns the protocol, the rest of the URL, and the character with which its path begins. Returns
/// `None` if the URL has another protocol or another form.
fn split_scheme(text: &str) -> Option<(GitTransport, &str, char)> {
    if let Some((scheme, rest)) = text.split_once("://") {
        let transport = match scheme.to_ascii_lowercase().as_str() {
            "https" => GitTransport::Https,
            "ssh" => GitTransport::Ssh,
            _ => return None,
        };
        return Some((transport, rest, '/'));
    }
    // The form `user@host:path`. The form `helper::address` is rejected, because it selects a
    // helper program. A path can contain a colon.
    let colon = text.find(':')?;
    let is_host = !text[..colon].contains('/') && !text[colon..].starts_with("::");
    // The first colon in an IPv6 address is not the colon before the path.
    (is_host && !text.contains('[')).then_some((GitTransport::Ssh, text, ':'))
}

fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|port| is_number && *port > 0)?;
            Some((host, Some(port)))
        }
        _ => Some((authority, None)),
    }
}

/// Parses a DNS name or an address. Returns `None` if the host is invalid. Other notations of
/// addresses, such as `0x7f.1`, are rejected, because programs read them differently. A name that
/// ends with a dot is rejected too. Old versions of curl do not find such a name among the checked
/// addresses, and resolve the name again.
fn parse_host(host: &str) -> Option<GitHost> {
    if let Some(address) = host.strip_prefix('[') {
        let address: Ipv6Addr = address.strip_suffix(']')?.parse().ok()?;
        return Some(GitHost::Address(address.into()));
    }
    let is_plain = is_plain(host, LONGEST_HOST);
    if !is_plain || host.starts_with('.') || host.ends_with('.') || host.contains("..") {
        return None;
    }
    let name = host.to_ascii_lowercase();
    let last = name.rsplit('.').next()?;
    let is_number = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
    if is_number {
        let address: Ipv4Addr = name.parse().ok()?;
        return Some(GitHost::Address(address.into()));
    }
    Some(GitHost::Name(name))
}

/// Returns true if `text` has 1 to `longest` letters, digits, `.`, `_` and `-`, and does not begin
/// with `-`.
fn is_plain(text: &str, longest: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty()
        && text.len() <= longest
        && !text.starts_with('-')
        && text.bytes().all(is_allowed)
}

/// Checks the name of a branch or tag by the rules of `git check-ref-format`, and rejects a leading
/// `-`. The error text continues a sentence that begins with the name of the field.
pub(super) fn check_ref(name: &str) -> Result<(), &'static str> {
    let is_special = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    let is_invalid_component = |component: &str| {
        component.is_empty()
            || component.starts_with('.')
            || component.strip_suffix(".lock").is_some()
    };
    if name.len() > LONGEST_REF {
        return Err("is longer than 244 bytes");
    }
    if name.starts_with('-')
        || name == "@"
        || name.ends_with('.')
        || name.contains("..")
        || name.contains("@{")
        || name.contains(is_special)
        || name.split('/').any(is_invalid_component)
    {
        return Err("is not a valid name of a git ref");
    }
    Ok(())
}

/// Parses a commit: 40 hexadecimal digits.
pub(super) fn parse_commit(text: &str) -> Result<String, &'static str> {
    let is_hash = text.len() == COMMIT_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("is not a commit of 40 hexadecimal digits")
    }
}

/// Checks a directory, which is already relative and without `..`. The error text continues a
/// sentence that begins with the name of the field.
pub(super) fn check_directory(path: &str) -> Result<(), &'static str> {
    if path.len() > LONGEST_DIRECTORY {
        return Err("is longer than 1024 bytes");
    }
    if path.contains(|c: char| c.is_control() || c == '\\') {
        return Err("has a backslash or a control character");
    }
    Ok(())
}

/// Returns true if the root of the bundle is the root of the repository: `directory` is empty or
/// `manifests`.
pub fn is_repository_root(directory: &str) -> bool {
    directory.is_empty() || directory == DEFAULT_DIRECTORY
}

/// Returns true if `entry` is always part of the bundle, when the root of the bundle is the root of
/// the repository. Other entries, such as sources and submodules, are part of the bundle only if
/// the repository has a [`CHART_FILE`].
pub fn is_bundle_entry(entry: &str) -> bool {
    matches!(entry, "bundle.yaml" | "manifests" | "metadata")
}

/// Name of the file that makes the root of a repository a chart. A chart can read any file of the
/// repository.
pub const CHART_FILE: &str = "Chart.yaml";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_https_and_ssh_are_parsed() {
        for (text, host, port, for_git) in [
            (
                "https://git.example.com/team/web.git",
                "git.example.com",
                443,
                "https://git.example.com/team/web.git",
            ),
            (
                "HTTPS://Git.Example.com:8443/web",
                "git.example.com",
                8443,
                "https://git.example.com:8443/web",
            ),
            (
                "git@git.example.com:team/web",
                "git.example.com",
                22,
                "git@git.example.com:team/web",
            ),
            (
                "git.example.com:team/web",
                "git.example.com",
                22,
                "git@git.example.com:team/web",
            ),
            (
                "ssh://ana@git.example.com:2222/srv/web.git",
                "git.example.com",
                2222,
                "ssh://ana@git.example.com:2222/srv/web.git",
            ),
            (
                "ssh://git.example.com/~/web",
                "git.example.com",
                22,
                "ssh://git@git.example.com/~/web",
            ),
            (
                "https://[2001:DB8::1]:443/web",
                "2001:db8::1",
                443,
                "https://[2001:db8::1]:443/web",
            ),
            (
                "https://127.0.0.1/web",
                "127.0.0.1",
                443,
                "https://127.0.0.1/web",
            ),
        ] {
            let url = GitUrl::parse(text).unwrap();
            assert_eq!(
                (
                    url.host().to_string().as_str(),
                    url.port(),
                    url.for_git().as_str()
                ),
                (host, port, for_git),
                "{text}"
            );
            assert_eq!(url.as_str(), text);
        }
    }

    #[test]
    fn rejects_urls_that_git_or_ssh_would_interpret() {
        for (text, why) in [
            ("file:///etc", OTHER_PROTOCOL),
            ("/etc", OTHER_PROTOCOL),
            ("./web", OTHER_PROTOCOL),
            ("web", OTHER_PROTOCOL),
            ("ext::sh", OTHER_PROTOCOL),
            ("ext::sh -c id", "has a space"),
            ("fd::17", OTHER_PROTOCOL),
            ("http://git.example.com/web", OTHER_PROTOCOL),
            ("git://git.example.com/web", OTHER_PROTOCOL),
            ("ext://git.example.com/web", OTHER_PROTOCOL),
            ("--upload-pack=id", OTHER_PROTOCOL),
            ("--upload-pack=id:web", "invalid host"),
            ("-oProxyCommand=id:web", "invalid host"),
            ("ssh://-oProxyCommand=id/web", "invalid host"),
            ("ssh://-l@git.example.com/web", "invalid user"),
            ("-l@git.example.com:web", "invalid user"),
            ("git@git.example.com:-web", "no path"),
            ("git@git.example.com:", "no path"),
            ("https://git.example.com", "no path"),
            ("https://git.example.com/", "no path"),
            ("https:///web", "invalid host"),
            ("https://ana:secret@git.example.com/web", "credentials"),
            ("https://token@git.example.com/web", "credentials"),
            ("ssh://ana:secret@git.example.com/web", "credentials"),
            ("https://git.example.com/web?token=1", "query"),
            ("https://git.example.com/web#x", "query"),
            ("https://git.example.com:0/web", "invalid port"),
            ("https://git.example.com:99999/web", "invalid port"),
            ("https://git.example.com:+1/web", "invalid port"),
            ("https://2130706433/web", "invalid host"),
            ("https://0x7f000001/web", "invalid host"),
            ("https://0177.0.0.1/web", "invalid host"),
            ("https://127.1/web", "invalid host"),
            ("https://127.0.0.1./web", "invalid host"),
            ("https://git.example.com./web", "invalid host"),
            ("git@git.example.com.:web", "invalid host"),
            ("https://[::1%25lo]/web", "invalid host"),
            ("https://git_ex!ample/web", "invalid host"),
            ("https://git.example.com/a b", "has a space"),
            ("https://git.example.com/a\nb", "has a space"),
            ("https://git.example.com/a\\b", "has a space"),
            ("git@git.example.com:a'b", "has a space"),
        ] {
            let error = GitUrl::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        let long = format!("https://git.example.com/{}", "a".repeat(LONGEST_URL));
        assert!(GitUrl::parse(&long).unwrap_err().contains("longer"));
    }

    #[test]
    fn refs_follow_the_rules_of_git() {
        for name in ["main", "release/1.4", "v1.4.0", "a@b", "HEAD", "ünï"] {
            assert_eq!(check_ref(name), Ok(()), "{name}");
        }
        for name in [
            "",
            "-x",
            "--upload-pack=id",
            "a..b",
            "a b",
            "a~1",
            "a^",
            "a:b",
            "refs/*",
            "a?",
            "a[b",
            "a\\b",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "a.lock/b",
            "a.",
            "@",
            "a@{1}",
            "a\nb",
            "a\u{7f}",
        ] {
            assert!(check_ref(name).is_err(), "{name}");
        }
        assert!(check_ref(&"a".repeat(245)).is_err());
    }

    #[test]
    fn commits_have_40_hexadecimal_digits() {
        let commit = "0123456789abcdefABCD0123456789abcdefabcd";
        assert_eq!(parse_commit(commit).unwrap(), commit.to_ascii_lowercase());
        for text in ["", "main", "0123", &"g".repeat(40), &"a".repeat(41)] {
            assert!(parse_commit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn root_of_a_repository_has_the_bundle_and_other_files() {
        assert!(is_repository_root("") && is_repository_root("manifests"));
        assert!(!is_repository_root("dev/deploy"));
        for entry in ["bundle.yaml", "manifests", "metadata"] {
            assert!(is_bundle_entry(entry));
        }
        assert!(!is_bundle_entry("vendor"));
    }
}
