//! `cargo xtask book`: builds the pages of docs/ as a book with mdBook, and checks their spelling
//! with typos. Both tools are compiled on first use, which takes minutes. Therefore this command is
//! not part of `cargo xtask test`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

/// A command-line tool from crates.io, at a fixed version.
struct CrateTool {
    package: &'static str,
    version: &'static str,
    program: &'static str,
    features: &'static [&'static str],
}

const MDBOOK: CrateTool = CrateTool {
    package: "mdbook",
    version: "0.5.4",
    program: "mdbook",
    features: &["--no-default-features", "--features", "search"],
};
const TYPOS: CrateTool = CrateTool {
    package: "typos-cli",
    version: "1.52.0",
    program: "typos",
    features: &[],
};

/// Build and check the book.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Skip the spell check.
    #[arg(long)]
    no_spelling: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let root = crate::apis::root()?;
    build(&root)?;
    if !arguments.no_spelling {
        check_spelling(&root)?;
    }
    println!("{}", root.join("target/book/index.html").display());
    Ok(())
}

/// Builds the book. A warning of mdBook is an error.
fn build(root: &Path) -> Result<()> {
    let output = Command::new(MDBOOK.installed()?)
        .arg("build")
        .current_dir(root)
        .output()
        .context("cannot start mdbook")?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || log.contains("WARN") || log.contains("ERROR") {
        bail!("mdbook build failed or warned:\n{log}");
    }
    Ok(())
}

/// Checks the spelling of all pages. `typos.toml` lists the terms of this project.
fn check_spelling(root: &Path) -> Result<()> {
    let status = Command::new(TYPOS.installed()?)
        .args(["--config", "typos.toml", "docs", "README.md"])
        .args(["CONTRIBUTING.md", "SECURITY.md"])
        .current_dir(root)
        .status()
        .context("cannot start typos")?;
    if !status.success() {
        bail!("typos found mistakes\nhint: correct them, or add a term to typos.toml");
    }
    Ok(())
}

impl CrateTool {
    /// Returns the path of the program. Compiles the program if it is missing.
    fn installed(&self) -> Result<PathBuf> {
        let folder = format!("target/tools/{}-{}", self.package, self.version);
        let root = crate::apis::root()?.join(folder);
        let program = root.join("bin").join(self.program);
        if program.exists() {
            return Ok(program);
        }
        eprintln!("compiling {} {}", self.package, self.version);
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["install", self.package, "--version", self.version])
            .args(["--locked", "--root"])
            .arg(&root)
            .args(self.features)
            .status()
            .context("cannot start cargo")?;
        if !status.success() {
            bail!("`cargo install {}` ended with {status}", self.package);
        }
        Ok(program)
    }
}
