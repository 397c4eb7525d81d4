//! The pod: its process, its Helm chart, its NetworkPolicy, and its limits.

pub(super) mod chart;
mod chart_values;
mod limits;
mod network_policy;
mod process;
mod secrets;
