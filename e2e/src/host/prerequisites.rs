//! Programs that must be installed (Go, git, a C compiler, Node, openssl, …), with install hints.
//! `tools` and `programs` build all other programs.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, anyhow};

/// Program that must be installed, because this repository does not build or contain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredProgram {
    /// The Go toolchain, for the tools under `e2e/tools`.
    Go,
    /// git, for bundles with a git source.
    Git,
    /// C compiler, for the TLS library.
    CCompiler,
    /// curl, the reference for transfer speed.
    Curl,
    /// `unshare` and `nsenter` of util-linux, for network namespaces.
    Unshare,
    /// skopeo, another client for registries, layouts and archives.
    Skopeo,
    /// `ip` of iproute2, which enables loopback in a network namespace.
    Ip,
    /// Node.js, for the Sigstore instance of tests.
    Node,
    /// npm, the package manager of Node.js.
    Npm,
    /// The command `openssl`, for timestamps.
    OpenSsl,
    /// Python with pip, which downloads Python packages that scenarios use.
    Python,
    /// runc, which starts the containers of a node.
    Runc,
    /// iptables, which kube-proxy needs for the addresses of Services on a node.
    Iptables,
    /// A static busybox: programs for the containers of a node.
    Busybox,
    /// C cross-compiler for 64-bit ARM.
    Arm64Compiler,
    /// C cross-compiler for 64-bit x86.
    Amd64Compiler,
    /// zsh, in which completion is tested. A zsh script also sends the keystrokes to the other
    /// shells.
    Zsh,
    /// fish, in which completion is tested.
    Fish,
    /// bash-completion, whose functions kubectl's completion for bash requires.
    BashCompletion,
    /// The OpenSSH server, which serves git repositories.
    Sshd,
    /// The OpenSSH client, with which git connects to repositories.
    Ssh,
}

/// File of bash-completion that bash sources.
pub const BASH_COMPLETION: &str = "/usr/share/bash-completion/bash_completion";

impl RequiredProgram {
    const fn facts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Go => (
                "go",
                "builds Kubernetes and other tools",
                "install Go 1.26 or newer: https://go.dev/doc/install, `brew install go`, or your distribution's package",
            ),
            Self::Git => (
                "git",
                "fetches bundles from repositories",
                "install the package `git`",
            ),
            Self::Curl => (
                "curl",
                "is the baseline for transfer speed",
                "install the package `curl`",
            ),
            Self::Unshare => (
                "unshare",
                "creates network namespaces without routes",
                "install the package `util-linux`; Linux is required",
            ),
            Self::Skopeo => (
                "skopeo",
                "tests the compatibility of images, layouts and archives",
                "install the package `skopeo`",
            ),
            Self::Ip => (
                "ip",
                "enables loopback in a network namespace",
                "install the package `iproute2`; Linux is required",
            ),
            Self::CCompiler => (
                "cc",
                "compiles the TLS library",
                "install the package `gcc` or `clang` (Debian: `build-essential`, macOS: `xcode-select --install`)",
            ),
            Self::Node => (
                "node",
                "runs the Sigstore instance of the tests",
                "install Node 20 or newer: https://nodejs.org, `brew install node`, or your distribution's package `nodejs`",
            ),
            Self::Npm => (
                "npm",
                "installs the packages of the Sigstore instance of the tests",
                "npm is part of Node.js (Debian: the package `npm`)",
            ),
            Self::OpenSsl => (
                "openssl",
                "creates the timestamps of the tests",
                "install the package `openssl`",
            ),
            Self::Runc => (
                "runc",
                "starts the containers of a node",
                "install the package `runc`; Linux is required",
            ),
            Self::Iptables => (
                "iptables",
                "implements the addresses of Services on a node",
                "install the package `iptables`; Linux is required",
            ),
            Self::Busybox => (
                "busybox",
                "is the program in small container images",
                "install the package `busybox-static`",
            ),
            Self::Arm64Compiler => (
                "aarch64-linux-gnu-gcc",
                "compiles the TLS library for linux/arm64",
                "install the packages `gcc-aarch64-linux-gnu` and `libc6-dev-arm64-cross`",
            ),
            Self::Amd64Compiler => (
                "x86_64-linux-gnu-gcc",
                "compiles the TLS library for linux/amd64",
                "install the packages `gcc-x86-64-linux-gnu` and `libc6-dev-amd64-cross`",
            ),
            Self::Zsh => (
                "zsh",
                "tests completion, and types into other shells",
                "install the package `zsh`",
            ),
            Self::Fish => ("fish", "tests completion", "install the package `fish`"),
            Self::BashCompletion => (
                BASH_COMPLETION,
                "provides the functions for completion in bash",
                "install the package `bash-completion`",
            ),
            Self::Sshd => (
                "/usr/sbin/sshd",
                "serves git repositories over SSH",
                "install the package `openssh-server`",
            ),
            Self::Ssh => (
                "ssh",
                "connects git to repositories over SSH",
                "install the package `openssh-client`",
            ),
            Self::Python => (
                "python3",
                "fetches packages that other projects published",
                "install Python 3 with pip (Debian: the package `python3-pip`)",
            ),
        }
    }
}

impl RequiredProgram {
    /// Returns the name on PATH.
    pub(crate) const fn name(self) -> &'static str {
        self.facts().0
    }

    /// Returns the Debian packages, separated by spaces, if `packages` may install them.
    pub(crate) const fn debian(self) -> Option<&'static str> {
        match self {
            Self::Curl => Some("curl"),
            Self::Unshare => Some("util-linux"),
            Self::Ip => Some("iproute2"),
            Self::Skopeo => Some("skopeo"),
            Self::Node => Some("nodejs"),
            Self::Npm => Some("npm"),
            Self::OpenSsl => Some("openssl"),
            Self::Python => Some("python3-pip"),
            Self::Runc => Some("runc"),
            Self::Iptables => Some("iptables"),
            Self::Busybox => Some("busybox-static"),
            Self::Arm64Compiler => Some("gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
            Self::Amd64Compiler => Some("gcc-x86-64-linux-gnu libc6-dev-amd64-cross"),
            Self::Zsh => Some("zsh"),
            Self::Fish => Some("fish"),
            Self::BashCompletion => Some("bash-completion"),
            Self::Sshd => Some("openssh-server"),
            Self::Ssh => Some("openssh-client"),
            Self::Git => Some("git"),
            Self::Go | Self::CCompiler => None,
        }
    }
}

/// Returns one error for all missing `programs`, with the purpose and an install hint of each
/// program.
pub fn check(programs: &[RequiredProgram]) -> Result<()> {
    let missing: Vec<_> = programs
        .iter()
        .filter_map(|program| {
            let (name, _, _) = program.facts();
            if let RequiredProgram::BashCompletion = program {
                let missing = io::Error::from(io::ErrorKind::NotFound);
                return (!Path::new(name).is_file())
                    .then(|| explain(*program, &missing).to_string());
            }
            // The exit code does not matter: the program only has to start.
            let tried = Command::new(name)
                .arg(match program {
                    RequiredProgram::Go | RequiredProgram::OpenSsl => "version",
                    _ => "--version",
                })
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            tried
                .err()
                .map(|error| explain(*program, &error).to_string())
        })
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(anyhow!(missing.join("\n")))
    }
}

/// Returns the error of a program that could not be started.
pub(crate) fn explain(program: RequiredProgram, error: &io::Error) -> anyhow::Error {
    let (name, purpose, way) = program.facts();
    if error.kind() == io::ErrorKind::NotFound {
        anyhow!("`{name}` is needed ({purpose}) and is not on PATH\nhint: {way}")
    } else {
        anyhow!("`{name}` is needed ({purpose}) and cannot be started: {error}\nhint: {way}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_is_reported_with_install_hint() {
        let text = explain(
            RequiredProgram::Go,
            &io::Error::from(io::ErrorKind::NotFound),
        )
        .to_string();
        assert!(text.starts_with("`go` is needed (builds Kubernetes and other tools) and is not on PATH\nhint: install Go"), "{text}");
    }

    #[test]
    fn a_machine_that_compiled_this_test_has_a_c_compiler() {
        check(&[RequiredProgram::CCompiler]).unwrap();
    }
}
