//! Platforms of images.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};

use crate::host::prerequisites::RequiredProgram;

/// Platform of an image. The operating system is Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Platform {
    /// 64-bit x86.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Platform {
    /// All platforms.
    pub const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// Returns the platform of this machine.
    pub fn of_this_machine() -> Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("there is no image for machines of the architecture {other}"),
        }
    }

    /// Returns the name of the architecture in image configurations.
    pub const fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Returns the name of the architecture in names of compilers.
    pub(super) const fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// Returns the Rust target with a static C library.
    pub(super) fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.machine())
    }

    /// Returns the C compiler for this platform on a machine of another platform.
    pub(super) const fn cross_compiler(self) -> RequiredProgram {
        match self {
            Self::Amd64 => RequiredProgram::Amd64Compiler,
            Self::Arm64 => RequiredProgram::Arm64Compiler,
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.architecture())
    }
}

impl FromStr for Platform {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        for platform in Self::ALL {
            if text == platform.architecture() || text == platform.to_string() {
                return Ok(platform);
            }
        }
        bail!("there is no image for `{text}`: write amd64 or arm64")
    }
}
