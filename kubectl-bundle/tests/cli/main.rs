//! The program in an empty environment. A snapshot has exit code, stdout and stderr.

#![expect(
    clippy::unwrap_used,
    reason = "test helpers fail by panicking, as tests do"
)]

mod context;

mod catalog;
mod deployments;
mod help;
mod package;
mod program;
mod signing;
mod transfer;
mod webhook;

/// Runs the program and compares exit code, stdout and stderr.
macro_rules! kb_snapshot {
    ($context:expr, [$($argument:expr),* $(,)?], @$expected:literal) => {
        insta::assert_snapshot!($context.run(&[$($argument.as_ref()),*]), @$expected)
    };
}
pub(crate) use kb_snapshot;
