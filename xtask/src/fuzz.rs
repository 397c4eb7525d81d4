//! `cargo xtask fuzz TARGET`: runs a fuzz target for a number of executions. The targets are in
//! `fuzz/`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};

/// Target and number of executions.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Fuzz target.
    #[arg(value_enum)]
    target: Target,
    /// Number of executions.
    #[arg(long, default_value_t = 10_000_000)]
    runs: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Target {
    Tar,
    Manifest,
    Reference,
    Package,
    Bundle,
    Statement,
    Keys,
    Policy,
    Proof,
    TypeConfusion,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::Manifest => "manifest",
            Self::Reference => "reference",
            Self::Package => "package",
            Self::Bundle => "bundle",
            Self::Statement => "statement",
            Self::Keys => "keys",
            Self::Policy => "policy",
            Self::Proof => "proof",
            Self::TypeConfusion => "type_confusion",
        }
    }

    /// Returns the maximum length of inputs. Longer inputs find few further errors and reduce the
    /// number of executions.
    fn longest(self) -> u32 {
        match self {
            // The input is a signature with a certificate and its evidence.
            Self::Bundle => 12_288,
            Self::Tar => 4096,
            Self::Package | Self::Statement | Self::Keys | Self::Policy | Self::Proof => 1024,
            Self::Manifest | Self::Reference | Self::TypeConfusion => 512,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let name = arguments.target.name();
    let corpus = Path::new("corpus").join(name);
    std::fs::create_dir_all(folder.join(&corpus)).context("cannot create the folder of inputs")?;
    // The code is safe Rust: without an address sanitizer the target runs several times faster, and
    // overflows are still found.
    let status = Command::new("cargo")
        .args([
            "+nightly",
            "fuzz",
            "run",
            "--fuzz-dir",
            ".",
            "--sanitizer",
            "none",
            name,
        ])
        .arg(&corpus)
        .arg(Path::new("seeds").join(name))
        .args([
            "--",
            "-timeout=10",
            "-rss_limit_mb=1024",
            "-print_final_stats=1",
        ])
        .arg(format!("-runs={}", arguments.runs))
        .arg(format!("-max_len={}", arguments.target.longest()))
        .current_dir(&folder)
        .status()
        .context("cannot run cargo; fuzz/README.md lists the requirements")?;
    if !status.success() {
        bail!("{name}: {status}; fuzz/README.md lists the requirements");
    }
    Ok(())
}
