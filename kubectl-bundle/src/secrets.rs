//! Secrets in our environment that other programs do not need: they are run without them.

use std::process::Command;

/// Passwords of keys, and tokens that say who signs.
const OURS: [&str; 3] = ["BUNDLE_PASSWORD", "COSIGN_PASSWORD", "SIGSTORE_ID_TOKEN"];
/// What CI systems hand out tokens for.
const OF_THE_JOB: [&str; 2] = [
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "BUILDKITE_AGENT_ACCESS_TOKEN",
];

/// Keeps them all from a program.
pub(crate) fn withhold(command: &mut Command) {
    withhold_ours(command);
    for name in OF_THE_JOB {
        command.env_remove(name);
    }
}

/// Keeps only our own from a program that may have to log in somewhere as this job.
pub(crate) fn withhold_ours(command: &mut Command) {
    for name in OURS {
        command.env_remove(name);
    }
}
