//! The reason why an inventory cannot be read or written.

use std::fmt;

use bundle_cluster::inventory::InventoryMapError;
use bundle_core::plan::inventory::{InventoryError, Reservation, TooManyObjects};

use crate::reconcile::api::object;

/// The reason why an inventory cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(in crate::reconcile) enum InventoryStoreError {
    #[error("cannot {doing} the inventory: {}", object::error_message(source))]
    Api {
        doing: &'static str,
        source: kube::Error,
    },
    #[error("another process has written the inventory")]
    Conflict,
    #[error("{object} is being adopted by another BundleDeployment")]
    Claimed { object: String },
    #[error("{object} {owner}")]
    Owned { object: String, owner: Owner },
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    #[error(transparent)]
    TooManyObjects(#[from] TooManyObjects),
    #[error("ConfigMap {name} is not an inventory: {why}")]
    Damaged { name: String, why: String },
}

impl From<InventoryMapError> for InventoryStoreError {
    fn from(error: InventoryMapError) -> Self {
        match error {
            InventoryMapError::Inventory(error) => Self::Inventory(error),
            InventoryMapError::Damaged { name, why } => Self::Damaged { name, why },
        }
    }
}

/// The BundleDeployment that owns an object or is installing it. Displayed, for example, as
/// `belongs to BundleDeployment web`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reconcile) struct Owner {
    pub(in crate::reconcile) deployment: String,
    pub(in crate::reconcile) reservation: Reservation,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.reservation {
            Reservation::Owned => "belongs to",
            Reservation::Installing => "is being installed by",
        };
        write!(f, "{verb} BundleDeployment {}", self.deployment)
    }
}
