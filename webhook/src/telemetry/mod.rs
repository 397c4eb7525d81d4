//! Logs, metrics and tracing spans.

pub mod logs;
pub mod metrics;
pub(crate) mod spans;
