//! `cargo xtask tools`: builds third-party tools and prints their folder. `e2e::tools` builds the
//! tools.

use anyhow::Result;
use clap::Args;
use e2e::Tool;
use e2e::host::prerequisites::{self, RequiredProgram};

/// Tools to build.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # kubectl and crane, in this shell:
  PATH=\"$(cargo xtask tools kubectl crane | tail -n1):$PATH\"
  # all tools (without a cache: about 15 minutes on two cores):
  cargo xtask tools")]
pub(crate) struct Arguments {
    /// Names of tools [default: all]
    #[arg(value_name = "NAME", help = format!("Any of {}. Default: all", names()))]
    names: Vec<Tool>,
}

/// Builds the tools. The last line on stdout is a folder that contains exactly the requested tools,
/// under their usual names.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    prerequisites::check(&[RequiredProgram::Go])?;
    let tools = if arguments.names.is_empty() {
        Tool::ALL.to_vec()
    } else {
        arguments.names.clone()
    };
    println!("{}", e2e::tools::folder(&tools)?.display());
    Ok(())
}

fn names() -> String {
    Tool::ALL.map(Tool::name).join(", ")
}
