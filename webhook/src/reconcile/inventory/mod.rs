//! The inventories of BundleDeployments: their storage, existing recorded objects and namespaces,
//! and objects that are being adopted.

pub(super) mod adoption_claims;
pub(super) mod decision;
pub(super) mod error;
pub(super) mod namespaces;
pub(super) mod present;
pub(super) mod recorded_owner;
pub(super) mod store;
