//! The records in the inventory of a BundleDeployment: decision, installation and revisions.

pub(in crate::reconcile) mod decision;
pub(in crate::reconcile) mod installation_record;
pub(in crate::reconcile) mod revisions;
