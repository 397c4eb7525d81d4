//! Messages of diagnostic codes that no other test compares as a whole. `cargo xtask gen` copies
//! them to the page about diagnostics.

mod cluster;
mod content;
mod registry;
mod signing;

/// Returns the diagnostics in the output of a command, each with its hint.
pub(crate) fn diagnostics(output: &str) -> String {
    let starts = ["error: ", "warning: ", "  hint: "];
    output
        .split_inclusive('\n')
        .filter(|line| starts.iter().any(|start| line.starts_with(start)))
        .collect()
}
