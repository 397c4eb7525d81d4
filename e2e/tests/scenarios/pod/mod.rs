//! The pod: its process and the environment of the process, its Helm chart, its NetworkPolicy, and
//! its limits.

pub(super) mod chart;
mod chart_values;
mod environment;
pub(super) mod limits;
mod network_policy;
mod process;
mod secrets;
