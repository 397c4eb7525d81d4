//! Platforms of the archives.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};

/// Operating system and architecture of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DistPlatform {
    /// Linux on 64-bit x86.
    LinuxAmd64,
    /// Linux on 64-bit ARM.
    LinuxArm64,
    /// macOS on 64-bit x86.
    DarwinAmd64,
    /// macOS on 64-bit ARM.
    DarwinArm64,
    /// Windows on 64-bit x86.
    WindowsAmd64,
    /// Windows on 64-bit ARM.
    WindowsArm64,
}

impl DistPlatform {
    /// All platforms, in the order of the krew manifest.
    pub const ALL: [Self; 6] = [
        Self::LinuxAmd64,
        Self::LinuxArm64,
        Self::DarwinAmd64,
        Self::DarwinArm64,
        Self::WindowsAmd64,
        Self::WindowsArm64,
    ];

    /// Returns the names that Go and krew use for the operating system and the architecture, and
    /// the Rust target.
    const fn names_and_target(self) -> (&'static str, &'static str, &'static str) {
        match self {
            // A released program is linked with static musl, so that it runs on machines with any C
            // library. Static glibc is not used: to resolve host names, static glibc loads
            // libraries of the machine, which must have the version of the linked glibc.
            Self::LinuxAmd64 => ("linux", "amd64", "x86_64-unknown-linux-musl"),
            Self::LinuxArm64 => ("linux", "arm64", "aarch64-unknown-linux-musl"),
            Self::DarwinAmd64 => ("darwin", "amd64", "x86_64-apple-darwin"),
            Self::DarwinArm64 => ("darwin", "arm64", "aarch64-apple-darwin"),
            Self::WindowsAmd64 => ("windows", "amd64", "x86_64-pc-windows-gnu"),
            Self::WindowsArm64 => ("windows", "arm64", "aarch64-pc-windows-gnullvm"),
        }
    }

    /// Returns the operating system: linux, darwin or windows.
    pub const fn os(self) -> &'static str {
        self.names_and_target().0
    }

    /// Returns the architecture: amd64 or arm64.
    pub const fn architecture(self) -> &'static str {
        self.names_and_target().1
    }

    /// Returns the Rust target.
    pub const fn target(self) -> &'static str {
        self.names_and_target().2
    }

    pub(super) const fn is_windows(self) -> bool {
        matches!(self, Self::WindowsAmd64 | Self::WindowsArm64)
    }

    pub(super) const fn is_macos(self) -> bool {
        matches!(self, Self::DarwinAmd64 | Self::DarwinArm64)
    }

    /// Returns the name of the program in the archive.
    pub const fn program(self) -> &'static str {
        if self.is_windows() {
            "kubectl-bundle.exe"
        } else {
            "kubectl-bundle"
        }
    }

    /// Returns the file name of the archive for this version.
    pub fn archive(self, version: &str) -> String {
        let (os, architecture, _) = self.names_and_target();
        let ending = if self.is_windows() { "zip" } else { "tar.gz" };
        format!("kubectl-bundle-v{version}-{os}-{architecture}.{ending}")
    }

    /// Returns the platform of this machine.
    pub fn of_this_machine() -> Result<Self> {
        match (std::env::consts::OS, std::env::consts::ARCH) {
            ("linux", "x86_64") => Ok(Self::LinuxAmd64),
            ("linux", "aarch64") => Ok(Self::LinuxArm64),
            (os, architecture) => {
                bail!("the harness does not run on {os} with the architecture {architecture}")
            }
        }
    }
}

impl fmt::Display for DistPlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os(), self.architecture())
    }
}

impl FromStr for DistPlatform {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL
            .into_iter()
            .find(|known| known.to_string() == text);
        let Some(found) = found else {
            let known = Self::ALL.map(|known| known.to_string());
            bail!(
                "there is no archive for `{text}`: write one of {}",
                known.join(", ")
            );
        };
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_are_parsed_from_their_names() {
        for platform in DistPlatform::ALL {
            assert_eq!(
                platform.to_string().parse::<DistPlatform>().unwrap(),
                platform
            );
        }
        let error = "macos/arm64"
            .parse::<DistPlatform>()
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("there is no archive for `macos/arm64`: write one of linux/amd64,"),
            "{error}"
        );
    }
}
