//! Messages that depend on the operating system or on time. `cargo xtask gen` copies `messages.txt`
//! to the page about diagnostics.

use std::io;
use std::time::Duration;

use super::deployments::state::waiting::timed_out;
use super::runtime::{interrupted, no_runtime};
use crate::failure::{Failure, rendered};

const RECORDED: &str = include_str!("messages.txt");

#[test]
fn messages_of_commands_are_recorded() {
    let limit = Duration::from_secs(60);
    let failures = [
        no_runtime(&io::Error::other("too many open files")),
        Failure::from(interrupted()),
        Failure::from(timed_out("web", "installed", limit)),
    ];
    let text: String = failures.iter().map(rendered).collect();
    assert_eq!(text, RECORDED, "copy the left side to messages.txt");
}
