//! The inventory of a BundleDeployment: its storage, and the records in it.

pub(in crate::reconcile) mod decision;
pub(in crate::reconcile) mod installation_record;
pub(in crate::reconcile) mod record;
pub(in crate::reconcile) mod revisions;
pub(in crate::reconcile) mod store;
