//! Secrets in the environment of this program that external commands do not get.

use std::process::Command;

/// Passwords of keys, and identity tokens.
const OWN_SECRETS: [&str; 3] = ["BUNDLE_PASSWORD", "COSIGN_PASSWORD", "SIGSTORE_ID_TOKEN"];
/// Variables with which CI systems issue tokens.
const CI_SECRETS: [&str; 2] = [
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "BUILDKITE_AGENT_ACCESS_TOKEN",
];

/// Removes the variables with secrets from the environment of a command.
pub(crate) fn remove_secrets(command: &mut Command) {
    remove_own_secrets(command);
    for name in CI_SECRETS {
        command.env_remove(name);
    }
}

/// Removes only this program's secrets, for a command that may need the identity of the CI job.
pub(crate) fn remove_own_secrets(command: &mut Command) {
    for name in OWN_SECRETS {
        command.env_remove(name);
    }
}
