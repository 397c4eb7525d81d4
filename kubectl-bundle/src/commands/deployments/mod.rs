//! Verbs for Bundles and BundleDeployments in a cluster.

pub(crate) mod adopt;
pub(crate) mod arguments;
pub(crate) mod bundle_spec;
pub(crate) mod content;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod deploy;
pub(crate) mod deployment;
pub(crate) mod deployment_flags;
pub(crate) mod diff;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod listing;
mod named_failures;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod preview;
pub(crate) mod resume;
pub(crate) mod revisions;
pub(crate) mod rollback;
pub(crate) mod run;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod tree;
pub(crate) mod unmanage;
pub(crate) mod write;
