//! Access to the cluster with the user's credentials: connect, apply, wait, and report the API
//! server's messages.

pub(crate) mod apply;
mod config;
mod connect;
pub(crate) mod content;
pub(crate) mod definitions;
pub(crate) mod events;
pub(crate) mod managed_fields;
mod request_log;
pub(crate) mod wait;

pub(crate) use config::{KubeSettings, Kubeconfig};
pub(crate) use connect::Cluster;
