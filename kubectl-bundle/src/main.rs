//! `kubectl bundle`: from arguments to settings to one command, and from its outcome to an exit code.
//! Not here: rules (bundle-core), or what a verb does (`commands/`).
fn main() {}
