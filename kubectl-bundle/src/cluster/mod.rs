//! Talking to a cluster as the person at the keyboard: connecting, applying, waiting, and saying what the server said.

pub(crate) mod apply;
mod config;
mod connect;
pub(crate) mod events;
pub(crate) mod owned;
mod request_log;
pub(crate) mod wait;

pub(crate) use config::{KubeSettings, Kubeconfig};
pub(crate) use connect::Cluster;
