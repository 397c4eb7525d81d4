//! The server of a repository: its checked addresses, and the credentials for the server. Git gets
//! the credentials in its environment. ssh gets the credentials in files that only this process can
//! read.

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bundle_core::review::source::git::{GitHost, GitTransport, GitUrl};
use fs_err::os::unix::fs::OpenOptionsExt as _;
use zeroize::Zeroizing;

/// Credentials for one server.
pub(crate) enum GitCredentials {
    /// A user and a password or token, for https.
    Basic {
        username: String,
        password: Zeroizing<String>,
    },
    /// A private key and the host keys of the server, for ssh.
    Ssh {
        private_key: Zeroizing<Vec<u8>>,
        known_hosts: Vec<u8>,
    },
}

/// A repository, the addresses of its host, and credentials.
pub(crate) struct GitRemote {
    pub(crate) url: GitUrl,
    /// The addresses of the host. Git contacts only these addresses.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) credentials: Option<GitCredentials>,
    pub(crate) verification: ServerVerification,
}

/// Verification of the certificate or host key of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerVerification {
    /// The certificate must be trusted, or the host key must be known.
    Required,
    /// Every certificate and host key is accepted.
    Skipped,
}

/// Settings of the processes that contact the server.
pub(super) struct RemoteSettings {
    /// The only protocol that git may use.
    pub(super) protocol: &'static str,
    pub(super) settings: Vec<(&'static str, Zeroizing<String>)>,
    /// The ssh command as a line for the shell. `None` for https.
    pub(super) ssh_command: Option<String>,
}

impl std::fmt::Debug for RemoteSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteSettings").finish_non_exhaustive()
    }
}

impl GitRemote {
    /// Writes the files that git and ssh need into `folder`, and returns the settings that name
    /// these files. `authorities` are trusted in addition to the authorities of the system.
    pub(super) fn write(
        &self,
        folder: &Path,
        authorities: Option<&Path>,
    ) -> io::Result<RemoteSettings> {
        let mut settings = vec![("remote.origin.url", self.url.for_git().into())];
        let mut ssh_command = None;
        let protocol = match self.url.transport() {
            GitTransport::Https => {
                if let Some(entry) = self.resolve_entry() {
                    settings.push(("http.curloptResolve", entry.into()));
                }
                if self.verification == ServerVerification::Skipped {
                    settings.push(("http.sslVerify", "false".to_owned().into()));
                }
                if let Some(GitCredentials::Basic { username, password }) = &self.credentials {
                    let pair = Zeroizing::new(format!("{username}:{}", password.as_str()));
                    let header = format!("Authorization: Basic {}", BASE64_STANDARD.encode(&*pair));
                    settings.push(("http.extraHeader", header.into()));
                }
                if let Some(authorities) = authorities {
                    let file = folder.join("authorities.pem");
                    write_authorities(authorities, &file)?;
                    settings.push(("http.sslCAInfo", text(&file)?.to_owned().into()));
                }
                "https"
            }
            GitTransport::Ssh => {
                ssh_command = Some(self.ssh_command(folder)?);
                "ssh"
            }
        };
        Ok(RemoteSettings {
            protocol,
            settings,
            ssh_command,
        })
    }

    /// Returns the entry that makes curl use the checked addresses for the host. Returns `None` if
    /// the URL contains an IP address instead of a host name.
    fn resolve_entry(&self) -> Option<String> {
        let GitHost::Name(name) = self.url.host() else {
            return None;
        };
        let addresses = self.addresses.iter().map(|address| match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        });
        let addresses: Vec<_> = addresses.collect();
        Some(format!(
            "{name}:{}:{}",
            self.url.port(),
            addresses.join(",")
        ))
    }

    /// Returns the command for ssh. With this command, ssh reads no configuration and uses only the
    /// given key. If verification is required, ssh accepts only the given host keys for the host in
    /// the URL.
    fn ssh_command(&self, folder: &Path) -> io::Result<String> {
        let (key, hosts) = (folder.join("key"), folder.join("known_hosts"));
        if let Some(GitCredentials::Ssh {
            private_key,
            known_hosts,
        }) = &self.credentials
        {
            write_secret(&key, private_key)?;
            write_secret(&hosts, known_hosts)?;
        }
        let port = self.url.port();
        let host = self.url.host();
        // For other ports, entries of `known_hosts` have the form `[host]:port`.
        let alias = if port == GitTransport::Ssh.default_port() {
            host.to_string()
        } else {
            format!("[{host}]:{port}")
        };
        let address = self.addresses.first();
        let address = address.ok_or_else(|| io::Error::other("the host has no address"))?;
        let mut words = vec!["ssh".to_owned(), "-F".to_owned(), "/dev/null".to_owned()];
        words.extend(["-T".to_owned(), "-a".to_owned(), "-x".to_owned()]);
        let (hosts, check) = match self.verification {
            ServerVerification::Required => (text(&hosts)?, "yes"),
            ServerVerification::Skipped => ("/dev/null", "no"),
        };
        let options = [
            format!("IdentityFile={}", text(&key)?),
            format!("UserKnownHostsFile={hosts}"),
            format!("HostName={address}"),
            format!("HostKeyAlias={alias}"),
            format!("StrictHostKeyChecking={check}"),
        ];
        let options = options
            .into_iter()
            .chain(SSH_OPTIONS.iter().map(|option| (*option).to_owned()));
        for option in options {
            words.extend(["-o".to_owned(), option]);
        }
        let words = words.iter().map(String::as_str);
        shlex::try_join(words).map_err(io::Error::other)
    }
}

const SSH_OPTIONS: [&str; 17] = [
    "GlobalKnownHostsFile=/dev/null",
    "UpdateHostKeys=no",
    "VerifyHostKeyDNS=no",
    "CheckHostIP=no",
    "IdentitiesOnly=yes",
    "IdentityAgent=none",
    "PreferredAuthentications=publickey",
    "BatchMode=yes",
    "ProxyCommand=none",
    "PermitLocalCommand=no",
    "ClearAllForwardings=yes",
    "ControlMaster=no",
    "ControlPath=none",
    "ConnectTimeout=15",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=2",
    "LogLevel=ERROR",
];

/// Writes a file that only this user can read, with a newline at its end, which ssh requires.
fn write_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = fs_err::OpenOptions::new();
    options.write(true).create_new(true);
    options.mode(0o600);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    if bytes.last() != Some(&b'\n') {
        file.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes the certificate authorities of the system and the authorities in `more` into `file`,
/// because git accepts only one file.
fn write_authorities(more: &Path, file: &Path) -> io::Result<()> {
    let system = openssl_probe::probe().cert_file;
    let mut written = fs_err::File::create(file)?;
    for part in system.as_deref().into_iter().chain([more]) {
        io::copy(&mut fs_err::File::open(part)?, &mut written)?;
        written.write_all(b"\n")?;
    }
    Ok(())
}

fn text(path: &Path) -> io::Result<&str> {
    let text = path.to_str();
    text.ok_or_else(|| io::Error::other("the path of the cache is not UTF-8"))
}
