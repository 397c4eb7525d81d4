//! The pod: its process, its Helm chart, its NetworkPolicy, and its limits.

pub(super) mod chart;
mod chart_values;
pub(super) mod limits;
mod network_policy;
mod process;
mod secrets;
