//! State of a BundleDeployment: its conditions, its objects, and the prediction whether it can
//! reach the expected state.

pub(crate) mod conditions;
pub(crate) mod inventory;
pub(crate) mod objects;
pub(crate) mod prediction;
pub(crate) mod unserved_api;
pub(crate) mod waiting;
