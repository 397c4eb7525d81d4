//! The reason why a git command failed, parsed from the messages of git and ssh on stderr. The git
//! server controls parts of these messages.

use std::fmt;

use bundle_core::diagnostic::{Code, codes};

/// Maximum number of characters of a quoted message.
const LONGEST: usize = 300;

/// Kinds of failures. The hint in the finding depends on the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The server did not respond.
    Unreachable,
    /// The Secret does not contain the host key.
    HostKey,
    /// The certificate is not trusted.
    Certificate,
    /// The server rejected the credentials, or requires credentials.
    Credentials,
    /// The ref does not exist.
    RefMissing,
    /// The server does not serve a commit by its hash.
    CommitNotServed,
    /// The server redirects to another URL.
    Redirect,
    /// Any failure that no other kind describes.
    Other,
}

/// A failed command of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitFailure {
    kind: Kind,
    /// The message of git, truncated and without control characters.
    message: String,
}

/// Texts in the messages of git, each with the kind of failure that it shows. The first text that
/// occurs in the messages determines the kind.
const MESSAGES: [(&str, Kind); 30] = [
    ("host key verification failed", Kind::HostKey),
    ("no matching host key type", Kind::HostKey),
    ("certificate", Kind::Certificate),
    ("ssl peer", Kind::Certificate),
    ("permission denied", Kind::Credentials),
    ("authentication failed", Kind::Credentials),
    ("could not read username", Kind::Credentials),
    ("could not read password", Kind::Credentials),
    ("returned error: 401", Kind::Credentials),
    ("returned error: 403", Kind::Credentials),
    ("couldn't find remote ref", Kind::RefMissing),
    ("unadvertised object", Kind::CommitNotServed),
    ("not our ref", Kind::CommitNotServed),
    ("returned error: 301", Kind::Redirect),
    ("returned error: 302", Kind::Redirect),
    ("returned error: 303", Kind::Redirect),
    ("returned error: 307", Kind::Redirect),
    ("returned error: 308", Kind::Redirect),
    ("returned error: 429", Kind::Unreachable),
    ("returned error: 5", Kind::Unreachable),
    ("connection refused", Kind::Unreachable),
    ("connection reset", Kind::Unreachable),
    ("connection closed", Kind::Unreachable),
    ("connection timed out", Kind::Unreachable),
    ("timed out", Kind::Unreachable),
    ("too slow", Kind::Unreachable),
    ("failed to connect", Kind::Unreachable),
    ("early eof", Kind::Unreachable),
    ("unexpected disconnect", Kind::Unreachable),
    ("empty reply", Kind::Unreachable),
];

impl GitFailure {
    /// Reads the messages of a failed process.
    pub(crate) fn new(stderr: &[u8]) -> Self {
        let text = String::from_utf8_lossy(stderr);
        let lower = text.to_ascii_lowercase();
        let known = MESSAGES.iter().find(|(part, _)| lower.contains(part));
        Self {
            kind: known.map_or(Kind::Other, |(_, kind)| *kind),
            message: quoted(&text),
        }
    }

    /// Returns true if git reports that the ssh program does not exist. Lines of the server, which
    /// have a prefix, are ignored.
    pub(super) fn lacks_ssh(stderr: &[u8]) -> bool {
        let text = String::from_utf8_lossy(stderr);
        let mut own = text.lines().filter(|line| !is_of_server(line));
        own.any(|line| line.contains("ssh: not found") || line.contains("ssh: command not found"))
    }

    /// Returns true if a process reached its memory limit. Lines of the server, which have a
    /// prefix, are ignored.
    pub(super) fn exceeds_memory(stderr: &[u8]) -> bool {
        let text = String::from_utf8_lossy(stderr);
        let mut own = text.lines().filter(|line| !is_of_server(line));
        own.any(|line| {
            let line = line.to_ascii_lowercase();
            line.contains("out of memory") || line.contains("cannot allocate memory")
        })
    }

    /// Returns true if the server does not have the revision.
    pub(super) fn is_missing_revision(&self) -> bool {
        matches!(self.kind, Kind::RefMissing | Kind::CommitNotServed)
    }

    pub(super) fn code(&self) -> Code {
        match self.kind {
            Kind::Unreachable => codes::install::GIT_UNREACHABLE,
            _ => codes::install::GIT_FAILED,
        }
    }

    pub(super) fn hint(&self) -> &'static str {
        match self.kind {
            Kind::Unreachable => "the request is retried automatically",
            Kind::HostKey => {
                "compare the host key of the server with ssh-knownhosts in the Secret of auth.secret"
            }
            Kind::Certificate => {
                "ask an administrator to add the certificate authority of the server with --registry-ca"
            }
            Kind::Credentials => {
                "set auth.secret to a Secret in the system namespace whose credentials the server accepts"
            }
            Kind::RefMissing => {
                "create the branch or tag, or create a Bundle that names another branch or tag"
            }
            Kind::CommitNotServed => {
                "the commit does not exist, or the server does not serve commits by their hash: allow it with uploadpack.allowReachableSHA1InWant, or name a branch or tag"
            }
            Kind::Redirect => "set the final URL in a new Bundle: redirects are not followed",
            Kind::Other => "check the URL of the repository; the operation is retried",
        }
    }
}

impl fmt::Display for GitFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            Kind::HostKey => "the host key of the server is not in ssh-knownhosts",
            Kind::Certificate => "the certificate of the server is not trusted",
            Kind::Credentials => "the server denies access",
            Kind::CommitNotServed => "the server does not serve the commit",
            Kind::Redirect => "the server redirects to another URL",
            Kind::Unreachable | Kind::RefMissing | Kind::Other => {
                return f.write_str(&self.message);
            }
        };
        write!(f, "{what} ({})", self.message)
    }
}

/// Prefixes of lines of stderr that the server wrote.
const SERVER_PREFIXES: [&str; 3] = ["remote: ", "fatal: remote error: ", "ERROR: "];

/// Prefixes of lines of stderr in which ssh reports its error. Git itself reports only that ssh
/// ended.
const SSH_PREFIXES: [&str; 2] = ["ssh: ", "No user exists for uid "];

fn is_of_server(line: &str) -> bool {
    SERVER_PREFIXES
        .iter()
        .any(|prefix| line.starts_with(prefix))
}

/// Returns the errors in `text` on one line. The errors from the server are marked.
fn quoted(text: &str) -> String {
    let of_line = |line: &str| {
        let from_server = SERVER_PREFIXES
            .iter()
            .find_map(|prefix| Some(("message of the server: ", line.strip_prefix(prefix)?)));
        let of_git = || {
            let prefixes = ["fatal: ", "error: "];
            let found = prefixes.iter().find_map(|prefix| line.strip_prefix(prefix));
            let is_of_ssh = SSH_PREFIXES.iter().any(|prefix| line.starts_with(prefix));
            Some(("", found.or_else(|| is_of_ssh.then_some(line))?))
        };
        let (author, message) = from_server.or_else(of_git).unwrap_or_default();
        let message = message.trim();
        let escaped: String = message
            .chars()
            .flat_map(char::escape_debug)
            .collect::<String>()
            .replace("\\'", "'")
            .replace("\\\"", "\"");
        (!message.is_empty()).then(|| format!("{author}{escaped}"))
    };
    let mut lines: Vec<String> = text.lines().filter_map(of_line).collect();
    lines.dedup();
    let message = match lines.len() {
        0 => "git failed without a message".to_owned(),
        _ => lines.join("; "),
    };
    if message.chars().count() <= LONGEST {
        return message;
    }
    let mut cut: String = message.chars().take(LONGEST).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_git_and_ssh_lead_to_different_next_steps() {
        for (stderr, kind) in [
            (
                "fatal: couldn't find remote ref refs/heads/x",
                Kind::RefMissing,
            ),
            (
                "Host key verification failed.\nfatal: Could not read from remote repository.",
                Kind::HostKey,
            ),
            (
                "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.",
                Kind::Credentials,
            ),
            (
                "fatal: Authentication failed for 'https://h/web/'",
                Kind::Credentials,
            ),
            (
                "fatal: could not read Username for 'https://h': terminal prompts disabled",
                Kind::Credentials,
            ),
            (
                "fatal: unable to access 'https://h/': The requested URL returned error: 403",
                Kind::Credentials,
            ),
            (
                "fatal: unable to access 'https://h/': The requested URL returned error: 503",
                Kind::Unreachable,
            ),
            (
                "fatal: unable to access 'https://h/': server certificate verification failed.",
                Kind::Certificate,
            ),
            (
                "fatal: remote error: upload-pack: not our ref 1234",
                Kind::CommitNotServed,
            ),
            (
                "error: Server does not allow request for unadvertised object 1234",
                Kind::CommitNotServed,
            ),
            (
                "fatal: unable to access 'https://h/': Failed to connect to h port 443",
                Kind::Unreachable,
            ),
            (
                "fatal: unable to update url base from redirection:\n  asked for: https://h",
                Kind::Other,
            ),
            ("", Kind::Other),
        ] {
            assert_eq!(GitFailure::new(stderr.as_bytes()).kind, kind, "{stderr}");
        }
    }

    #[test]
    fn quoted_messages_are_short_and_have_no_control_characters() {
        let stderr = format!(
            "warning: x\nremote: {}\u{1b}[31mred\nfatal: end\n",
            "a".repeat(10)
        );
        let failure = GitFailure::new(stderr.as_bytes());
        assert_eq!(
            failure.to_string(),
            "message of the server: aaaaaaaaaa\\u{1b}[31mred; end"
        );
        let refused = GitFailure::new(b"fatal: remote error: access denied\nERROR: no\n");
        assert_eq!(
            refused.to_string(),
            "message of the server: access denied; message of the server: no"
        );
        let unreachable = b"ssh: connect to host 203.0.113.9 port 22: Connection refused\r\nfatal: Could not read from remote repository.\n\nPlease make sure";
        assert_eq!(
            GitFailure::new(unreachable).to_string(),
            "ssh: connect to host 203.0.113.9 port 22: Connection refused; Could not read from remote repository."
        );
        let long = format!("fatal: {}", "a".repeat(4000));
        assert_eq!(
            GitFailure::new(long.as_bytes()).to_string().chars().count(),
            LONGEST + 1
        );
        assert_eq!(
            GitFailure::new(b"").to_string(),
            "git failed without a message"
        );
    }

    #[test]
    fn memory_limits_are_detected_in_messages_of_git_alone() {
        let memory = "fatal: Out of memory, malloc failed (tried to allocate 4294967297 bytes)";
        assert!(GitFailure::exceeds_memory(memory.as_bytes()));
        assert!(GitFailure::exceeds_memory(
            b"x\nfatal: mmap failed: Cannot allocate memory\n"
        ));
        for prefix in ["remote: ", "fatal: remote error: ", "ERROR: "] {
            let text = format!("{prefix}{memory}\nfatal: x");
            assert!(!GitFailure::exceeds_memory(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn missing_ssh_program_is_detected() {
        assert!(GitFailure::lacks_ssh(b"sh: 1: ssh: not found\nfatal: x"));
        assert!(!GitFailure::lacks_ssh(b"ssh: connect to host h port 22: x"));
        assert!(!GitFailure::lacks_ssh(b"remote: sh: 1: ssh: not found"));
    }
}
