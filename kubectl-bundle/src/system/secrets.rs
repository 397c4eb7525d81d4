//! Secrets in the environment of this program that external commands do not get.

use std::process::Command;

/// Passwords of keys, and identity tokens.
const OURS: [&str; 3] = ["BUNDLE_PASSWORD", "COSIGN_PASSWORD", "SIGSTORE_ID_TOKEN"];
/// Variables with which CI systems issue tokens.
const OF_THE_JOB: [&str; 2] = [
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "BUILDKITE_AGENT_ACCESS_TOKEN",
];

/// Removes all of them from a command.
pub(crate) fn withhold(command: &mut Command) {
    withhold_ours(command);
    for name in OF_THE_JOB {
        command.env_remove(name);
    }
}

/// Removes only this program's secrets, for a command that may need the identity of the CI job.
pub(crate) fn withhold_ours(command: &mut Command) {
    for name in OURS {
        command.env_remove(name);
    }
}
