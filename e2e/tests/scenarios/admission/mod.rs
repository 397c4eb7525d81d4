//! Admission of Bundles and BundleDeployments by the webhook: responses, callers, deletions, and
//! stamps.

pub(super) mod callers;
mod deletions;
mod responses;
mod service_path;
pub(super) mod stamps;
